"""Per-sample gradient norms as a by-product of the backward pass of the update.

A tap is a leaf tensor with one number per sample. While a `Taps` records, every layer adds its part of the sample's
squared gradient norm to the tap's gradient when the backward pass reaches its output. After the backward pass, the
tap's gradient is the squared norm of each sample's gradient of the differentiated loss. `squared_norms` converts it to
d(i), which samplers need; see docs/gradients.md.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aes_rl.gradients.norms import CLOSED_FORMS, ClosedForm

Reduction = Literal["mean", "sum"]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers without a closed form of the per-sample norm."""


class Taps:
    """Computes the per-sample gradient norms of one network. Parameter gradients are bitwise unchanged.

    Record the forward pass, then differentiate as usual:

        taps = Taps(critic)
        tap = taps.tap((batch_size,))
        with taps.recording(tap):
            loss = (weights * (critic(inputs) - targets).square().squeeze(-1)).mean()
        loss.backward()
        d = squared_norms(tap.grad, weights)

    Forward passes outside `recording`, such as that of the critic in the actor's loss, are ignored and cost nothing.
    """

    def __init__(self, network: nn.Module, is_functional: bool = False, skips: tuple[type[nn.Module], ...] = ()):
        """Attach to every layer with trained parameters; raise on the first that has no closed form.

        `is_functional` means that the network is called with substituted parameters, possibly with several sets of them
        in one pass. Their squared norms are then summed. `skips` are kinds of modules whose own parameters are left out
        of the norms, such as `CONVOLUTIONS`.
        """
        self._is_functional = is_functional
        self._seen: set[str] = set()
        self._tap: Tensor | None = None
        owners: dict[nn.Parameter, str] = {}
        layers: list[tuple[str, nn.Module]] = []
        for name, layer in network.named_modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                raise TypeError(
                    f"layer {name!r} is a {type(layer).__name__}, which makes the loss of a sample depend on the whole "
                    "batch: there is no gradient per sample; use LayerNorm"
                )
            trained = [p for p in layer.parameters(recurse=False) if p.requires_grad]
            if not trained or isinstance(layer, skips):
                continue
            if type(layer) not in CLOSED_FORMS:
                raise TypeError(
                    f"layer {name!r} is a {type(layer).__name__}, whose per-sample gradient norm has no closed form "
                    f"here; supported are {', '.join(kind.__name__ for kind in CLOSED_FORMS)}. "
                    "Use aes_rl.gradients.exact.squared_norms, or freeze the layer"
                )
            if any(own not in ("weight", "bias") for own, _ in layer.named_parameters(recurse=False)):
                raise TypeError(
                    f"layer {name!r} computes its weight from other parameters, so its norm has no closed form; "
                    "use aes_rl.gradients.exact.squared_norms"
                )
            for parameter in trained:
                if parameter in owners:
                    raise TypeError(
                        f"layers {owners[parameter]!r} and {name!r} share a parameter, so their norms cannot be added; "
                        "use aes_rl.gradients.exact.squared_norms"
                    )
                owners[parameter] = name
            layers.append((name, layer))
        if not owners:
            raise ValueError("the network has no trained parameter; set requires_grad on those to tap")
        self._example = next(iter(owners))
        self._handles = [layer.register_forward_hook(self._hook(name, layer)) for name, layer in layers]

    def tap(self, batch_shape: tuple[int, ...]) -> Tensor:
        """A leaf of zeros, one per sample: [B], or [P, B] for population layers. Use a new one per forward pass."""
        return torch.zeros(batch_shape, dtype=self._example.dtype, device=self._example.device, requires_grad=True)

    @contextmanager
    def recording(self, tap: Tensor) -> Iterator[None]:
        """Record the forward passes in this context into a tap."""
        self.connect(tap)
        try:
            yield
        finally:
            self.disconnect()

    def connect(self, tap: Tensor) -> None:
        """Record all forward passes from now on into a tap; prefer `recording`, which disconnects afterwards."""
        self._tap = tap
        self._seen = set()

    def disconnect(self) -> None:
        """Stop recording."""
        self._tap = None

    def remove(self) -> None:
        """Remove the hooks from the network."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str, layer: nn.Module) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        form_of = CLOSED_FORMS[type(layer)]
        ranks = len(layer.normalized_shape) if isinstance(layer, nn.LayerNorm) else 1

        def tap_output(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if self._tap is None or not torch.is_grad_enabled():
                return output
            if not arguments:
                raise ValueError(f"layer {name!r} was called by keyword while recording; pass its input by position")
            inputs, form = arguments[0], form_of(layer)
            if form is None:
                return output
            if name in self._seen and not self._is_functional:
                raise RuntimeError(f"layer {name!r} was called twice while recording; use one tap for each pass")
            rank = self._tap.dim() + ranks
            if inputs.dim() != rank or inputs.shape[: rank - ranks] != self._tap.shape:
                raise ValueError(
                    f"layer {name!r} got inputs of shape {tuple(inputs.shape)} for a tap of shape "
                    f"{tuple(self._tap.shape)}; per-sample norms need one row per sample and no further axes"
                )
            self._seen.add(name)
            if torch.compiler.is_compiling():
                tapped: Tensor = _Identity.apply(output, self._tap, inputs, form)  # type: ignore[no-untyped-call]
                return tapped
            if output._is_view():  # an in-place operation on a view would drop the hook
                output = output.clone()
            output.register_hook(partial(_accumulate_norm, self._tap, inputs.detach(), form))  # type: ignore[no-untyped-call]
            return output

        return tap_output


def _accumulate_norm(tap: Tensor, inputs: Tensor, form: ClosedForm, gradient: Tensor) -> None:
    """Add a layer's squared norms to the tap's gradient, at a third of the cost of `_Identity`."""
    if torch.is_grad_enabled():
        raise RuntimeError("a recorded pass was differentiated with create_graph, which taps do not support; omit it")
    share = form(inputs, gradient).to(tap.dtype)
    tap.grad = share if tap.grad is None else tap.grad.add_(share)


class _Context(Protocol):
    """What `_Identity` uses of autograd's context."""

    form: ClosedForm
    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def mark_dirty(self, *tensors: Tensor) -> None: ...


class _Identity(torch.autograd.Function):
    """The identity, whose backward pass also returns the layer's squared norms to the tap. Used by torch.compile."""

    @staticmethod
    def forward(ctx: _Context, output: Tensor, _tap: Tensor, inputs: Tensor, form: ClosedForm) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.form = form
        ctx.mark_dirty(output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (inputs,) = ctx.saved_tensors
        return gradient, ctx.form(inputs, gradient), None, None


def squared_norms(
    tapped: Float[Tensor, "*P B"], weights: Float[Tensor, "*P B"] | None = None, reduction: Reduction = "mean"
) -> Float[Tensor, "*P B"]:
    """d(i): the squared gradient norm of each sample's own, unweighted loss term.

    `tapped` is the gradient of the tap for a loss that is the sum or the mean (over B) of the weighted terms. The
    weights and the mean are divided out here.
    """
    scale = float(tapped.shape[-1]) ** 2 if reduction == "mean" else 1.0
    return tapped * scale if weights is None else tapped * scale / weights.square()
