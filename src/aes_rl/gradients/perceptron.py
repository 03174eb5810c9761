"""Multilayer perceptrons of K members as one autograd function, which computes per-sample norms with the gradients.

`Taps` works with any network, at the cost of one Python call per layer. In the reference agents these calls would cost
more than the norms. Their networks are therefore one autograd function each, which writes the parameter gradients
directly into the memory that the optimiser reads.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aes_rl.backends import has_kernels
from aes_rl.gradients.norms import linear_norms, scaled_norms
from aes_rl.layers import PopulationLinear


class Perceptron(nn.Module):
    """Linear layers with ReLU between them. Additional inputs may enter at one of the layers."""

    def __init__(self, members: int, sizes: Sequence[int], late_size: int = 0, late_layer: int = 1):
        """`sizes` are the widths from input to output; `late_size` more inputs enter layer `late_layer` (from 0)."""
        super().__init__()
        late_sizes = [late_size if number == late_layer else 0 for number in range(len(sizes) - 1)]
        layers = [
            PopulationLinear(members, inputs + late, outputs)
            for (inputs, outputs), late in zip(pairwise(sizes), late_sizes, strict=True)
        ]
        self.layers = nn.ModuleList(layers)
        self.late_size, self.late_layer = late_size, late_layer
        self.metric: list[tuple[Tensor, Tensor]] | None = None
        """Diagonal metric of the norms: factors of the squared weight and bias gradients per layer; None: Euclidean."""
        self.requires_grad_(False)
        self.weights = [layer.weight for layer in layers]
        self.biases = [layer.bias for layer in layers if layer.bias is not None]

    def forward(
        self,
        inputs: Float[Tensor, "P B in"],
        late: Float[Tensor, "P B late"] | None = None,
        tap: Float[Tensor, "K B"] | None = None,
        norm_members: slice | None = None,
    ) -> Float[Tensor, "K B out"]:
        """The output of the last layer. K may be a multiple of P: consecutive copies then share their inputs.

        Without a tap, autograd differentiates the output with respect to the inputs only. A `tap` is a leaf tensor.
        Differentiating a loss with respect to it writes every parameter's `grad`, which must be allocated, and returns
        the squared norm of each sample's gradient for `norm_members` of the P members, zeros for the others.
        """
        can_fuse = inputs.dtype == torch.float32 and len(self.weights) <= _MOST_FUSED and self.metric is None
        kind = _FusedPass if can_fuse and has_kernels(inputs) else _Pass
        output: Tensor = kind.apply(inputs, late, tap, self, norm_members)  # type: ignore[no-untyped-call]
        return output


_MOST_FUSED = 4
"""Maximum number of layers that the kernel for the norms supports."""


class _Pass(torch.autograd.Function):
    """Forward and backward of a whole perceptron, as tensor operations."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, late: Tensor | None, tap: Tensor | None, network: Perceptron, members: slice | None
    ) -> Tensor:
        entering, output = [], inputs
        ctx.share = len(network.weights[0]) // len(inputs)
        for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            if number == network.late_layer and late is not None:
                own = late.repeat_interleave(ctx.share, dim=0) if number and ctx.share > 1 else late
                output = torch.cat([output, own], dim=-1)
            if number == 0 and ctx.share > 1:
                output = output.repeat_interleave(ctx.share, dim=0)
            entering.append(output)
            output = torch.baddbmm(bias, output, weight)
            if number < len(network.weights) - 1:
                output.relu_()
        ctx.save_for_backward(*entering)
        ctx.network, ctx.norm_copies, ctx.is_trained = network, _copies(members, inputs, ctx.share), tap is not None
        ctx.late_size = 0 if late is None else late.shape[-1]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_inputs = of_late = norms = None
        network = ctx.network
        for number in reversed(range(len(ctx.saved_tensors))):
            entered = ctx.saved_tensors[number]
            weight, bias = network.weights[number], network.biases[number]
            if ctx.is_trained:
                torch.bmm(entered.transpose(1, 2), gradient, out=weight.grad)
                torch.sum(gradient, dim=1, keepdim=True, out=bias.grad)
            if ctx.norm_copies is not None:
                own = entered[ctx.norm_copies], gradient[ctx.norm_copies]
                if network.metric is None:
                    of_layer = linear_norms(*own)
                else:
                    of_layer = scaled_norms(*own, *(part[ctx.norm_copies] for part in network.metric[number]))
                norms = of_layer if norms is None else norms.add_(of_layer)
            if ctx.late_size and number == network.late_layer:
                if ctx.needs_input_grad[1]:
                    of_late = _shared(torch.bmm(gradient, weight[:, -ctx.late_size :].transpose(1, 2)), ctx.share)
                entered, weight = entered[..., : -ctx.late_size], weight[:, : -ctx.late_size]
            if number > 0:
                gradient = torch.bmm(gradient, weight.transpose(1, 2))
                torch.ops.aten.threshold_backward.grad_input(gradient, entered, 0, grad_input=gradient)
            elif ctx.needs_input_grad[0]:
                of_inputs = _shared(torch.bmm(gradient, weight.transpose(1, 2)), ctx.share)
        if norms is not None and len(norms) < len(gradient):
            of_all = norms.new_zeros(gradient.shape[:2])
            of_all[ctx.norm_copies] = norms
            norms = of_all
        return of_inputs, of_late, norms, None, None


class _FusedPass(torch.autograd.Function):
    """As `_Pass`, with Triton kernels. All hidden layers are parts of one tensor, and so are their gradients."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, late: Tensor | None, tap: Tensor | None, network: Perceptron, members: slice | None
    ) -> Tensor:
        from aes_rl.backends.triton import networks as triton_networks

        copies, batch = len(network.weights[0]), inputs.shape[1]
        widths = [weight.shape[-1] for weight in network.weights]
        hidden = list(torch.split(inputs.new_empty(copies, batch, sum(widths[:-1])), widths[:-1], dim=-1))
        output = inputs.new_empty(copies, batch, widths[-1])
        entering = [inputs, *hidden]
        for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            joined = late if number == network.late_layer else None
            out = output if number == len(hidden) else hidden[number]
            triton_networks.layer(entering[number], joined, weight, bias, out, has_relu=number < len(hidden))
        ctx.save_for_backward(late, *entering)
        ctx.network, ctx.is_trained, ctx.widths = network, tap is not None, widths
        ctx.members, ctx.norm_copies = members, _copies(members, inputs, copies // len(inputs))
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, last: Tensor) -> tuple[Tensor | None, ...]:
        from aes_rl.backends.triton import networks as triton_networks

        late, *entering = ctx.saved_tensors
        network, last = ctx.network, last.contiguous()
        copies, batch, _ = last.shape
        share = copies // len(entering[0])
        gradients = last.new_empty(copies, batch, sum(ctx.widths[:-1]))
        leaving = [*torch.split(gradients, ctx.widths[:-1], dim=-1), last]
        of_inputs = of_late = norms = None
        for number in reversed(range(len(leaving))):
            entered, gradient = entering[number], leaving[number]
            weight, bias = network.weights[number], network.biases[number]
            joined = late if number == network.late_layer else None
            width = entered.shape[-1]
            if ctx.is_trained:
                triton_networks.layer_gradients(entered, joined, gradient, weight.grad, bias.grad)
            if joined is not None and ctx.needs_input_grad[1]:
                of_late = last.new_empty(copies, batch, joined.shape[-1])
                triton_networks.input_gradient(gradient, weight[:, width:], None, of_late)
            if number > 0:
                triton_networks.input_gradient(gradient, weight[:, :width], entered, leaving[number - 1])
            elif ctx.needs_input_grad[0]:
                of_inputs = last.new_empty(copies, batch, width)
                triton_networks.input_gradient(gradient, weight[:, :width], None, of_inputs)
        if ctx.norm_copies is not None:
            inputs, *hidden = entering
            own = ctx.norm_copies
            norms = (torch.empty if own == slice(0, copies) else torch.zeros)(copies, batch, device=last.device)
            triton_networks.squared_norms(
                inputs[ctx.members],
                None if late is None else late[ctx.members],
                network.late_layer,
                [part[own] for part in hidden],
                gradients[own],
                last[own],
                norms[own],
            )
        return _shared(of_inputs, share), _shared(of_late, share), norms, None, None


def _copies(members: slice | None, inputs: Tensor, share: int) -> slice | None:
    """The slice of network copies that belong to a slice of members."""
    if members is None:
        return None
    start, stop, _ = members.indices(len(inputs))
    return slice(start * share, stop * share)


def _shared(gradient: Tensor | None, share: int) -> Tensor | None:
    """The gradient of inputs, summed over the `share` consecutive copies that read them."""
    if gradient is None or share == 1:
        return gradient
    return gradient.view(-1, share, *gradient.shape[1:]).sum(dim=1)
