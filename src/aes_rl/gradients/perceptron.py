"""A perceptron of P members as one step of the backward pass, which yields per-sample norms with the gradients.

`Taps` reads the norms of any network, by a call into Python for every layer. In the reference agents those calls would
cost more than the norms, so their networks are one autograd function each, and it writes the parameters' gradients
where the optimiser reads them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aes_rl.engines import has_kernels
from aes_rl.gradients.norms import linear_norms
from aes_rl.layers import PopulationLinear


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; the last is linear. Further inputs may join after the first layer."""

    def __init__(self, members: int, sizes: Sequence[int], late_size: int = 0):
        super().__init__()
        late_sizes = [late_size if number == 1 else 0 for number in range(len(sizes) - 1)]
        layers = [
            PopulationLinear(members, inputs + late, outputs)
            for (inputs, outputs), late in zip(pairwise(sizes), late_sizes, strict=True)
        ]
        self.layers = nn.ModuleList(layers)
        self.requires_grad_(False)
        self._weights = [layer.weight for layer in layers]
        self._biases = [layer.bias for layer in layers if layer.bias is not None]

    def forward(
        self,
        inputs: Float[Tensor, "P B in"],
        late: Float[Tensor, "P B late"] | None = None,
        tap: Float[Tensor, "P B"] | None = None,
        wants_norms: bool = False,
    ) -> Float[Tensor, "P B out"]:
        """The last layer's output.

        Without a tap, autograd differentiates it with respect to its inputs alone. A `tap` is a leaf of zeros:
        differentiating with respect to it sets every parameter's `grad`, which must exist, and gives, if wanted, the
        squared norm of each sample's gradient of the differentiated loss.
        """
        output: Tensor = _Pass.apply(inputs, late, tap, self, wants_norms)  # type: ignore[no-untyped-call]
        return output


class _Pass(torch.autograd.Function):
    """Forward and backward of a whole perceptron."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, late: Tensor | None, tap: Tensor | None, network: Perceptron, wants_norms: bool
    ) -> Tensor:
        entering, output = [], inputs
        for number, (weight, bias) in enumerate(zip(network._weights, network._biases, strict=True)):
            if number == 1 and late is not None:
                output = torch.cat([output, late], dim=-1)
            entering.append(output)
            output = _layer(output, weight, bias, has_relu=number < len(network._weights) - 1)
        ctx.save_for_backward(*entering)
        ctx.network, ctx.wants_norms, ctx.is_trained = network, wants_norms, tap is not None
        ctx.late_size = 0 if late is None else late.shape[-1]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_late = norms = None
        for number in reversed(range(len(ctx.saved_tensors))):
            entered = ctx.saved_tensors[number]
            weight, bias = ctx.network._weights[number], ctx.network._biases[number]
            if ctx.is_trained:
                torch.bmm(entered.transpose(1, 2), gradient, out=weight.grad)
                torch.sum(gradient, dim=1, keepdim=True, out=bias.grad)
            if ctx.wants_norms:
                of_layer = linear_norms(entered, gradient)
                norms = of_layer if norms is None else norms.add_(of_layer)
            if number == 0 and not ctx.needs_input_grad[0]:
                return None, of_late, norms, None, None
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
            if number == 1 and ctx.late_size:
                of_late, entered = gradient[..., -ctx.late_size :], entered[..., : -ctx.late_size]
                gradient = gradient[..., : -ctx.late_size].contiguous()
            if number > 0:
                torch.ops.aten.threshold_backward.grad_input(gradient, entered, 0, grad_input=gradient)
        return gradient, of_late, norms, None, None


def _layer(
    inputs: Float[Tensor, "P B in"], weight: Float[Tensor, "P in out"], bias: Float[Tensor, "P 1 out"], has_relu: bool
) -> Float[Tensor, "P B out"]:
    if has_kernels(inputs):
        from aes_rl.engines.triton_kernels import add_bias_

        output = torch.bmm(inputs, weight)
        add_bias_(output, bias, has_relu)
        return output
    output = torch.baddbmm(bias, inputs, weight)
    return output.relu_() if has_relu else output
