"""Our samplers in Tianshou 2: replay buffers, and one call that attaches them to SAC, TD3 or DDPG.

    buffer = SelectiveVectorReplayBuffer(100_000, len(environments), sampler=Adaptive())
    attach(algorithm, buffer)

Tianshou places transitions itself and needs their order, so the oldest is always the one overwritten, whatever the
sampler's `overwrite` says.
"""

from typing import Any

import numpy as np
import torch
from typing_extensions import override

from aes_rl.integrations.attachment import Watched
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Selection
from aes_rl.integrations.watching import AbstractAttachment, is_stored
from aes_rl.samplers.registry import overwriting_the_oldest

require("tianshou", "2.0", "3", "tianshou")
from tianshou.algorithm.modelfree.ddpg import DDPG  # noqa: E402
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha  # noqa: E402
from tianshou.algorithm.modelfree.td3 import TD3  # noqa: E402
from tianshou.data import ReplayBuffer, VectorReplayBuffer  # noqa: E402

Array = np.ndarray[Any, Any]
_SUPPORTED = (SAC, TD3, DDPG)


class _Selective:
    """What the two buffers share."""

    selection: Selection
    maxsize: int

    def _choose_by(self, sampler: Any, seed: int, total_updates: int | None) -> None:
        self.selection = Selection(overwriting_the_oldest(sampler), self.maxsize, seed, total_updates)

    def add(self, batch: Any, buffer_ids: Any = None) -> tuple[Array, Array, Array, Array]:
        """Store transitions where the host wants them."""
        result: tuple[Array, Array, Array, Array] = super().add(batch, buffer_ids)  # type: ignore[misc]
        self.selection.follow(np.asarray(result[0]).reshape(-1))
        return result

    def update(self, buffer: Any) -> Array:
        """Move another buffer's transitions here."""
        places: Array = super().update(buffer)  # type: ignore[misc]
        self.selection.follow(np.asarray(places).reshape(-1))
        return places

    def sample_indices(self, batch_size: int | None) -> Array:
        """Places by the sampler's probabilities; all of them, as ever, where no batch size is given."""
        if batch_size is None or batch_size <= 0:
            every: Array = super().sample_indices(batch_size)  # type: ignore[misc]
            return every
        return self.selection.draw_places(batch_size)

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget all transitions, and all that is known of them."""
        super().reset(keep_statistics)  # type: ignore[misc]
        self.selection = self.selection.emptied()

    def discard(self) -> None:
        """Forget the last sampled batch, one that was not trained on."""
        self.selection.discard()


class SelectiveReplayBuffer(_Selective, ReplayBuffer):
    """Tianshou's replay buffer with one of our samplers choosing what to draw."""

    def __init__(self, size: int, *, sampler: Any, seed: int = 0, total_updates: int | None = None, **options: Any):
        """`sampler` is a configuration such as `Adaptive()`; annealed ones need `total_updates`."""
        _refuse(options)
        super().__init__(size, **options)
        self._choose_by(sampler, seed, total_updates)


class SelectiveVectorReplayBuffer(_Selective, VectorReplayBuffer):
    """The same for several environments, each with a part of the buffer."""

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        sampler: Any,
        seed: int = 0,
        total_updates: int | None = None,
        **options: Any,
    ):
        """`sampler` is a configuration such as `Adaptive()`; annealed ones need `total_updates`."""
        _refuse(options)
        super().__init__(total_size, buffer_num, **options)
        self._choose_by(sampler, seed, total_updates)


class Attachment(AbstractAttachment):
    """SAC, TD3 or DDPG with weighted losses."""

    def __init__(self, algorithm: Any, buffer: Any):
        self._algorithm, self._buffer = algorithm, buffer
        super().__init__()

    @override
    def install(self) -> None:
        algorithm, needs = self._algorithm, self.selection().needs
        for name in ("critic", "critic2"):
            critic = getattr(algorithm, name, None)
            if critic is not None:
                self.watch(critic, Watched("critic", critic, [critic.last], needs, error_factor=0.5), is_stored)
        actor = algorithm.policy.actor
        self.watch(actor, Watched("actor", actor, _heads(actor), needs))
        if isinstance(getattr(algorithm, "alpha", None), AutoAlpha):
            self._weigh_temperature(algorithm.alpha)

    @override
    def selection(self) -> Selection:
        selection: Selection = self._buffer.selection
        return selection

    @override
    def device(self) -> torch.device:
        device: torch.device = next(self._algorithm.policy.parameters()).device
        return device

    def _weigh_temperature(self, alpha: Any) -> None:
        original, target = alpha.update, alpha._target_entropy

        def update(entropy: torch.Tensor) -> float | None:
            pending = self.selection().pending
            if pending is not None:
                # The loss is linear in the deficit, whose mean is taken: a weighted deficit weighs the loss.
                entropy = target - pending.weights.reshape(entropy.shape) * (target - entropy)
            result: float | None = original(entropy)
            return result

        alpha.update = update
        self._undo.append(lambda: delattr(alpha, "update"))


def attach(algorithm: Any, buffer: Any) -> Attachment:
    """Weigh the losses of SAC, TD3 or DDPG, and report every batch's norms and errors to its replay buffer."""
    if type(algorithm) not in _SUPPORTED:
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(f"{type(algorithm).__name__} cannot be attached; supported are {names}")
    if not isinstance(buffer, _Selective):
        raise TypeError(
            f"the buffer is a {type(buffer).__name__}; make a SelectiveReplayBuffer, or a SelectiveVectorReplayBuffer "
            "for several environments"
        )
    return Attachment(algorithm, buffer)


def _heads(actor: Any) -> list[torch.nn.Module]:
    """The modules that everything leaving an actor passes through."""
    if hasattr(actor, "last"):
        return [actor.last]
    if isinstance(getattr(actor, "sigma", None), torch.nn.Module):
        return [actor.mu, actor.sigma]
    raise TypeError(
        f"{type(actor).__name__} has a standard deviation that does not depend on the state, whose norm has no closed "
        "form here; make it with conditioned_sigma=True"
    )


def _refuse(options: dict[str, Any]) -> None:
    if options.get("stack_num", 1) != 1:
        raise ValueError(f"stack_num is {options['stack_num']}; stacked frames are not supported, use stack_num=1")
