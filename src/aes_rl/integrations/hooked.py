"""Attachments to libraries whose losses take no weights: hooks on the networks weight them."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from typing_extensions import override

from aes_rl.integrations.attachment import AbstractAttachment
from aes_rl.integrations.selection import Pending
from aes_rl.integrations.watched import Watched

Arguments = tuple[object, ...]
"""Positional arguments of a forward pass."""


class AbstractHookedAttachment(AbstractAttachment):
    """Hooks that weight a learner's losses and collect per-sample norms and TD errors. `detach` removes them."""

    def __init__(self, learner: object, measure_every: int | None):
        """Watch the networks. If one of them cannot be watched, remove the hooks of the others."""
        super().__init__(learner, measure_every)
        self._undo: list[Callable[[], None]] = []
        try:
            self.install()
        except Exception:
            self._take_off()
            raise

    @abstractmethod
    def install(self) -> None:
        """Watch every network."""

    @override
    def report(self) -> None:
        pending = self.selection().pending
        if pending is not None and pending.sources:
            self.selection().settle(drops_incomplete=True)

    @override
    def detach(self) -> None:
        try:
            self.report()
        finally:
            self._take_off()
            self.release()

    def _take_off(self) -> None:
        """Undo everything, the last first, even if something of it fails."""
        with ExitStack() as stack:
            for undo in self._undo:
                stack.callback(undo)
            self._undo = []

    def current(self) -> Pending | None:
        """The batch that the learner is working on."""
        return self.selection().pending if self._measured is None else self._measured

    def pending(self, rows: int, watcher: object) -> Pending | None:
        """The current batch, if a watcher sees its pass: the first one with gradients and this many rows; or None."""
        pending = self.current()
        if pending is None or not torch.is_grad_enabled() or len(pending.weights) != rows or watcher in pending.passes:
            return None
        pending.passes.add(watcher)
        pending.weights = pending.weights.to(self.device())
        return pending

    def open(self, watched: Watched, pending: Pending) -> None:
        """Weight the network's next forward pass and report its feedback."""
        watched.open(pending)
        pending.sources.append(watched.report)

    def watch(self, network: nn.Module, watched: Watched, counts: Callable[[Arguments], bool] | None = None) -> None:
        """Weight the network's pass over each batch; with `counts`, of those whose arguments it accepts."""

        def before(module: nn.Module, arguments: Arguments) -> None:
            del module
            if counts is None or counts(arguments):
                pending = self.pending(rows_of(arguments[0]), watched)
                if pending is not None:
                    self.open(watched, pending)

        def after(module: nn.Module, arguments: Arguments, output: object) -> None:
            del module, arguments, output
            watched.close()

        self._undo += [
            network.register_forward_pre_hook(before).remove,
            network.register_forward_hook(after).remove,
            watched.remove,
        ]


@contextmanager
def without_steps(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[None]:
    """Let the optimizers' `step` do nothing."""
    changed = [(vars(optimizer), vars(optimizer).get("step")) for optimizer in optimizers]
    for attributes, _ in changed:
        attributes["step"] = _do_nothing
    try:
        yield
    finally:
        for attributes, own in changed:  # a learning rate schedule puts a `step` of its own there
            if own is None:
                del attributes["step"]
            else:
                attributes["step"] = own


def _do_nothing(closure: object = None) -> None:
    del closure


def is_stored(arguments: Arguments) -> bool:
    """Whether a critic's action argument is a stored action. An action with a gradient comes from the actor."""
    return not getattr(arguments[1], "requires_grad", False)


def rows_of(observation: object) -> int:
    """Batch size of an observation or of a dictionary of observations."""
    if isinstance(observation, dict):
        observation = next(iter(observation.values()))
    assert isinstance(observation, Sized)
    return len(observation)
