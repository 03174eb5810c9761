"""What the hosts' attachments share: when a pass counts, and how everything comes off again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aes_rl.integrations.attachment import Watched
from aes_rl.integrations.selection import Pending, Selection


class AbstractAttachment:
    """A learner whose losses are weighted and whose gradients are heard. `detach` makes it what it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def selection(self) -> Selection:
        """The selection of the buffer that the learner trains from now."""
        raise NotImplementedError

    def device(self) -> torch.device:
        """Where the learner's networks are."""
        raise NotImplementedError

    def detach(self) -> None:
        """Take everything off; what was heard of the last batch still counts."""
        selection = self.selection()
        if selection.pending is not None and selection.pending.sources:
            selection.settle()
        while self._undo:
            self._undo.pop()()

    def pending(self, rows: int) -> Pending | None:
        """The batch in training, if a pass with so many rows can be one over it."""
        pending = self.selection().pending
        if pending is None or not torch.is_grad_enabled() or len(pending.weights) != rows:
            return None
        pending.weights = pending.weights.to(self.device())
        return pending

    def open(self, watched: Watched, pending: Pending) -> None:
        """Let a network's next pass count."""
        watched.open(pending)
        pending.sources[watched] = watched.report

    def watch(self, network: nn.Module, watched: Watched, counts: Callable[[Any], bool] | None = None) -> None:
        """Let a network's passes under gradients count, or those whose arguments say so."""

        def before(module: nn.Module, arguments: Any) -> None:
            del module
            pending = self.pending(rows_of(arguments[0]))
            if pending is not None and (counts is None or counts(arguments)):
                self.open(watched, pending)

        def after(module: nn.Module, arguments: Any, output: Any) -> None:
            del module, arguments, output
            watched.close()

        self._undo += [
            network.register_forward_pre_hook(before).remove,
            network.register_forward_hook(after).remove,
            watched.remove,
        ]


def is_stored(arguments: Any) -> bool:
    """Whether a critic is asked about a stored action: one with a gradient comes from the actor in training."""
    return not getattr(arguments[1], "requires_grad", False)


def rows_of(observation: Any) -> int:
    """Samples in an observation, which may be a dictionary of them."""
    if isinstance(observation, dict):
        observation = next(iter(observation.values()))
    return len(observation)
