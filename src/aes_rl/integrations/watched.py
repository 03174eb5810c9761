"""Importance weights and per-sample gradient norms for the training step of another library.

Row i of the gradient with respect to a watched network's outputs is multiplied by the weight of sample i. If the loss
is a mean over the batch, every parameter then gets the gradient of the weighted loss. Taps on the layers collect the
per-sample norms in the same backward pass. Passes outside `open` and `close` are neither changed nor slowed down.
"""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aes_rl.errors import UserError
from aes_rl.gradients import Taps, squared_norms
from aes_rl.integrations.selection import Pending
from aes_rl.types import Signal


class Mark:
    """Shows that a network is attached. It is its first hook, which a copy of the network meets before the others.

    The hooks of a copy would report to the original's attachment.
    """

    def __call__(self, *arguments: object) -> None:
        """Do nothing in a forward pass."""

    def __deepcopy__(self, memo: object) -> NoReturn:
        del memo
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        raise UserError("an attached network cannot be copied or pickled; detach() before copying the model")


class Watched:
    """One network with hooks. Call `open` before the forward pass of its loss and `close` after it."""

    def __init__(
        self,
        name: str,
        network: nn.Module,
        outputs: Sequence[nn.Module],
        needs: Signal,
        error_factor: float = 0.0,
        skips: tuple[type[nn.Module], ...] = (),
        has_squared_loss: bool = True,
    ):
        """Register the hooks.

        Args:
            name: Name of the network in the feedback, "actor" or "critic".
            network: The network.
            outputs: The network itself if it is called as a module, or its output modules. Every output of the network
                must be an output of one of them, or go through `weighted`.
            needs: Signals that batches may ask for.
            error_factor: Of a critic: its loss L is the mean over the batch of δ²/(2 · error_factor), so that
                |δ| = error_factor · B · |∂L/∂Q|.
            skips: Kinds of modules whose own parameters the norms leave out. Others without a closed form are rejected.
            has_squared_loss: Of a critic: whether L is that loss for all errors. If it is a Huber loss, the errors are
                the clipped ones and the terms of L are reported elsewhere.
        """
        if any(isinstance(hook, Mark) for hook in network._forward_hooks.values()):
            raise UserError(f"the {name} is already attached; detach() the old attachment first, or keep it")
        self.name = name
        self._factor, self._has_squared_loss = error_factor, has_squared_loss
        self._taps = Taps(network, skips=skips) if Signal.GRADIENT_NORM in needs else None
        self._handles = [network.register_forward_hook(Mark(), prepend=True)]
        self._handles += [module.register_forward_hook(self._watch_output) for module in outputs]
        self._pending: Pending | None = None
        self._tap: Tensor | None = None
        self._gradients: list[Tensor] = []

    def open(self, pending: Pending) -> None:
        """Weight the next forward pass as one over this batch."""
        self._pending, self._gradients = pending, []
        if self._taps is not None and Signal.GRADIENT_NORM in pending.needs:
            self._tap = self._taps.tap((len(pending.weights),))
            self._taps.connect(self._tap)

    def close(self) -> None:
        """Stop weighting forward passes."""
        self._pending = None
        if self._taps is not None:
            self._taps.disconnect()

    def report(self, pending: Pending) -> None:
        """Add what the backward pass showed to the batch."""
        self.close()  # a pass that was interrupted is still open
        if self._tap is not None and self._tap.grad is not None:
            norms = squared_norms(self._tap.grad, pending.weights)
            others = pending.gradient_norm.get(self.name)  # the critics may be separate networks
            pending.gradient_norm[self.name] = norms if others is None else others + norms
        if Signal.TD_ERROR in pending.needs:
            pending.td_errors += [_error(gradient, self._factor).abs() for gradient in self._gradients]
        if self._has_squared_loss:
            pending.critic_terms += [partial(_loss_terms, gradient, self._factor) for gradient in self._gradients]
        pending.is_unfinished |= self._tap is not None and self._tap.grad is None
        self._tap, self._gradients = None, []

    def remove(self) -> None:
        """Remove all hooks."""
        self.close()
        if self._taps is not None:
            self._taps.remove()
        for handle in self._handles:
            handle.remove()

    def _watch_output(self, module: nn.Module, arguments: tuple[object, ...], output: object) -> object:
        del module, arguments
        return self._all_weighted(output)

    def _all_weighted(self, output: object) -> object:
        """An output, or a tuple of outputs and of what is none, such as the hidden state of a network without one."""
        if isinstance(output, tuple | list):
            return tuple(map(self._all_weighted, output))
        return self.weighted(output) if isinstance(output, Tensor) else output

    def weighted(self, output: Tensor) -> Tensor:
        """An output of the network with the same values, whose gradient is weighted row by row."""
        if self._pending is None or not torch.is_grad_enabled() or not output.requires_grad:
            return output
        # A clone: what else uses the output itself, such as a tap or another output, must not see the weights twice.
        leaving = output.clone()
        weigh = partial(self._weigh, self._pending.weights.reshape(-1, *[1] * (output.dim() - 1)))
        leaving.register_hook(weigh)  # type: ignore[no-untyped-call]
        return leaving

    def _weigh(self, weights: Float[Tensor, "B *_"], gradient: Float[Tensor, "B *K"]) -> Float[Tensor, "B *K"]:
        if self._factor:
            self._gradients.append(gradient)
        return gradient * weights


def _error(gradient: Float[Tensor, "B K"], factor: float) -> Float[Tensor, "B"]:
    """δ = factor · B · ∂L/∂Q, where at most one of the K outputs of a sample is in its loss."""
    return factor * len(gradient) * gradient.sum(dim=-1)


def _loss_terms(gradient: Float[Tensor, "B K"], factor: float) -> Float[Tensor, "B"]:
    """δ²/(2 · factor), whose mean over the batch is the critic's unweighted loss."""
    return _error(gradient, factor).square() / (2 * factor)
