"""What the hosts' attachments share: when a pass counts, and how everything comes off again."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aes_rl.integrations.attachment import Watched
from aes_rl.integrations.selection import Pending, Selection


class AbstractAttachment(ABC):
    """A learner whose losses are weighted and whose gradients are heard. `detach` makes it what it was."""

    def __init__(self) -> None:
        """Watch the learner; where one of its networks cannot be watched, leave all of them as they were."""
        self._undo: list[Callable[[], None]] = []
        try:
            self.install()
        except Exception:
            self._take_off()
            raise

    @abstractmethod
    def install(self) -> None:
        """Watch every network."""

    @abstractmethod
    def selection(self) -> Selection:
        """The selection of the buffer that the learner trains from now."""

    @abstractmethod
    def device(self) -> torch.device:
        """Where the learner's networks are."""

    def detach(self) -> None:
        """Take everything off; what was heard of the last batch still counts."""
        selection = self.selection()
        if selection.pending is not None and selection.pending.sources:
            selection.settle()
        self._take_off()

    def _take_off(self) -> None:
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
        pending.sources.append(watched.report)

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
