"""Per-sample gradient norms as a by-product of the update's own backward pass.

A tap is a leaf, one number a sample. While a `Taps` is recording, the gradient that reaches a layer's output during the
ordinary backward adds the layer's share of the sample's squared gradient norm to the tap's gradient. After the backward
that is the squared norm of each sample's gradient of the loss that was differentiated. `squared_norms` turns it into
d(i) of S2.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aes_rl.gradients.norms import CLOSED_FORMS, ClosedForm

Reduction = Literal["mean", "sum"]


class Taps:
    """Reads the per-sample gradient norms of one network. Parameter gradients are bitwise those without it.

    Use it around the forward pass, then differentiate as ever:

        taps = Taps(critic)
        tap = taps.tap((batch_size,))
        with taps.recording(tap):
            loss = (weights * (critic(inputs) - targets).square().squeeze(-1)).mean()
        loss.backward()
        d = squared_norms(tap.grad, weights)

    Forward passes outside `recording`, such as the critic's inside the actor's loss, cost and count nothing.
    """

    def __init__(self, network: nn.Module, is_functional: bool = False):
        """Attach to every layer with parameters; raises on the first that has no closed form.

        A functional network is called with parameters put into it for the call, several sets of them in one pass;
        their norms add up.
        """
        self._is_functional = is_functional
        self._seen: set[str] = set()
        self._tap: Tensor | None = None
        owners: dict[nn.Parameter, str] = {}
        layers: list[tuple[str, nn.Module]] = []
        for name, layer in network.named_modules():
            trained = [p for p in layer.parameters(recurse=False) if p.requires_grad]
            if not trained:
                continue
            if type(layer) not in CLOSED_FORMS:
                raise TypeError(
                    f"layer {name!r} is a {type(layer).__name__}, whose per-sample gradient norm has no closed form "
                    f"here; there is one for {', '.join(kind.__name__ for kind in CLOSED_FORMS)}. "
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
                        f"layers {owners[parameter]!r} and {name!r} share a parameter, so their norms do not add up; "
                        "use aes_rl.gradients.exact.squared_norms"
                    )
                owners[parameter] = name
            layers.append((name, layer))
        if not owners:
            raise ValueError("the network has no trained parameter to tap")
        self._example = next(iter(owners))
        self._handles = [layer.register_forward_hook(self._hook(name, layer)) for name, layer in layers]

    def tap(self, batch_shape: tuple[int, ...]) -> Tensor:
        """A leaf of zeros, one number a sample: [B], or [P, B] for population layers. One for every forward pass."""
        return torch.zeros(batch_shape, dtype=self._example.dtype, device=self._example.device, requires_grad=True)

    @contextmanager
    def recording(self, tap: Tensor) -> Iterator[None]:
        """Connect the forward passes inside to a tap."""
        self.connect(tap)
        try:
            yield
        finally:
            self.disconnect()

    def connect(self, tap: Tensor) -> None:
        """Connect the forward passes from now on to a tap; `recording` is the safer way where it can be used."""
        self._tap = tap
        self._seen = set()

    def disconnect(self) -> None:
        """Leave the forward passes from now on alone."""
        self._tap = None

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str, layer: nn.Module) -> Any:
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
                raise RuntimeError(f"layer {name!r} was called twice while recording; its two gradients would mix")
            rank = self._tap.dim() + ranks
            if inputs.dim() != rank or inputs.shape[: rank - ranks] != self._tap.shape:
                raise ValueError(
                    f"layer {name!r} was fed {tuple(inputs.shape)} while a batch of {tuple(self._tap.shape)} was "
                    "recorded; per-sample norms need one row a sample and no further axes"
                )
            self._seen.add(name)
            if torch.compiler.is_compiling():
                tapped: Tensor = _Identity.apply(output, self._tap, inputs, form)  # type: ignore[no-untyped-call]
                return tapped
            if output._is_view():  # an operation in place would take it out of the graph, and the hook with it
                output = output.clone()
            output.register_hook(partial(_pay, self._tap, inputs.detach(), form))  # type: ignore[no-untyped-call]
            return output

        return tap_output


def _pay(tap: Tensor, inputs: Tensor, form: ClosedForm, gradient: Tensor) -> None:
    """Add a layer's share to the tap's gradient: a third of the cost of a call of `_Identity`."""
    if torch.is_grad_enabled():
        raise RuntimeError("a recorded pass was differentiated with create_graph; norms need the loss's own backward")
    share = form(inputs, gradient).to(tap.dtype)
    tap.grad = share if tap.grad is None else tap.grad.add_(share)


class _Identity(torch.autograd.Function):
    """Returns its input, in place; in the backward pass also pays the tap the layer's share. The compiler's way."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _tap: Tensor, inputs: Tensor, form: ClosedForm) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.form = form
        ctx.mark_dirty(output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (inputs,) = ctx.saved_tensors
        return gradient, ctx.form(inputs, gradient), None, None


def squared_norms(
    tapped: Float[Tensor, "*P B"], weights: Float[Tensor, "*P B"] | None = None, reduction: Reduction = "mean"
) -> Float[Tensor, "*P B"]:
    """d(i) of S2, the squared norm of the unweighted gradient of one sample's own loss term.

    `tapped` is the tap's gradient under a loss that sums or averages (over B) each sample's term times its weight; the
    weight and the average are undone here.
    """
    scale = float(tapped.shape[-1]) ** 2 if reduction == "mean" else 1.0
    return tapped * scale if weights is None else tapped * scale / weights.square()
