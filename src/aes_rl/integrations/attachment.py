"""Shared part of the attachments: which forward passes are weighted, and how the hooks are removed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aes_rl.integrations.selection import Pending, Selection
from aes_rl.integrations.watched import Watched


class AbstractAttachment(ABC):
    """Hooks that weight a learner's losses and collect per-sample norms and TD errors. `detach` removes them."""

    def __init__(self) -> None:
        """Watch the networks. If one of them cannot be watched, remove the hooks of the others."""
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
        """The selection of the learner's current buffer."""

    @abstractmethod
    def device(self) -> torch.device:
        """Device of the learner's networks."""

    def detach(self) -> None:
        """Remove all hooks, after reporting the last batch."""
        selection = self.selection()
        if selection.pending is not None and selection.pending.sources:
            selection.settle()
        self._take_off()

    def _take_off(self) -> None:
        while self._undo:
            self._undo.pop()()

    def pending(self, rows: int) -> Pending | None:
        """The current batch, if a forward pass with this many rows can be over it; otherwise None."""
        pending = self.selection().pending
        if pending is None or not torch.is_grad_enabled() or len(pending.weights) != rows:
            return None
        pending.weights = pending.weights.to(self.device())
        return pending

    def open(self, watched: Watched, pending: Pending) -> None:
        """Weight the network's next forward pass and report its feedback."""
        watched.open(pending)
        pending.sources.append(watched.report)

    def watch(self, network: nn.Module, watched: Watched, counts: Callable[[Any], bool] | None = None) -> None:
        """Weight the network's forward passes with gradients; with `counts`, only those whose arguments it accepts."""

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
    """Whether a critic's action argument is a stored action. An action with a gradient comes from the actor."""
    return not getattr(arguments[1], "requires_grad", False)


def rows_of(observation: Any) -> int:
    """Batch size of an observation or of a dictionary of observations."""
    if isinstance(observation, dict):
        observation = next(iter(observation.values()))
    return len(observation)
