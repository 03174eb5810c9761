"""Samplers for TorchRL: a Sampler and a Writer for its replay buffers, and `attach` for its losses.

    sampler = SelectiveSampler(Adaptive(), capacity=100_000)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100_000), sampler=sampler, writer=SelectiveWriter(sampler), batch_size=256
    )
    loss = SACLoss(actor, qvalue, reduction="none", deactivate_vmap=True)
    attach(loss, sampler)
    …
    losses = loss(buffer.sample())
    (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).mean().backward()

TorchRL's losses multiply every term by the batch's `priority_weight`. With `reduction="mean"` they divide by the sum of
the weights, which is biased. Use `reduction="none"` and take the mean yourself.
"""

import json
import os
import threading
from functools import partial
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils import _pytree as pytree

from aes_rl.errors import UserError
from aes_rl.gradients import Taps, squared_norms
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Pending, Selection
from aes_rl.types import Signal

require("torchrl", "0.14", "0.15", "torchrl")
from tensordict import is_tensor_collection  # type: ignore[import-untyped]  # noqa: E402
from torchrl.data.replay_buffers.checkpointers import FlatStorageCheckpointer  # noqa: E402
from torchrl.data.replay_buffers.her import HERReplayBuffer  # noqa: E402
from torchrl.data.replay_buffers.sample_units import Transition  # noqa: E402
from torchrl.data.replay_buffers.samplers import Sampler  # noqa: E402
from torchrl.data.replay_buffers.storages import ListStorage  # noqa: E402
from torchrl.data.replay_buffers.writers import Writer  # noqa: E402
from torchrl.objectives import DDPGLoss, SACLoss, TD3Loss  # noqa: E402

_SUPPORTED = {SACLoss: "qvalue_network", TD3Loss: "qvalue_network", DDPGLoss: "value_network"}
"""Supported losses, with the attribute name of their critics."""
_NOT_SHARED = (
    "the buffer is shared between processes (shared=True, or it was passed to another process), and the sampler exists "
    "in one: rows written by the others would never be drawn; leave shared out, and draw and write in one process"
)


class SelectiveSampler(Sampler):
    """Draws slots with a sampler. Batches contain `priority_weight` and `draw`, the number of the batch."""

    def __init__(self, config: Any, capacity: int, seed: int = 0, total_updates: int | None = None):
        """`config` is a configuration such as `Adaptive()`. `capacity` is the capacity of the storage."""
        self.selection = Selection(config, capacity, seed, total_updates, draws_ahead=True)
        self.attachment: Attachment | None = None
        """Collects the feedback on its batches."""
        self.has_writer = False
        """Whether a SelectiveWriter uses this sampler to choose slots."""
        self._process = os.getpid()

    @property
    def _rng(self) -> None:
        """None: the sampler has its own random stream."""

    @_rng.setter
    def _rng(self, generator: torch.Generator | None) -> None:
        # The host sets this last when it creates a buffer, after the writer.
        if generator is not None:
            raise UserError(
                "a generator was given, and SelectiveSampler does not use it; leave generator out and give "
                "SelectiveSampler a seed"
            )
        if not self.has_writer:
            raise UserError(
                "the buffer has a SelectiveSampler and no SelectiveWriter, so the sampler cannot know what is stored; "
                "use writer=SelectiveWriter(sampler)"
            )

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw slots, with their importance weights."""
        self.check_process()
        held = len(storage)
        if held == 0:
            raise RuntimeError("Cannot sample from an empty storage.")  # the text of the host's own samplers
        if held != len(self.selection):
            raise UserError(
                f"the storage holds {held} transitions and the sampler has {len(self.selection)}; write only through "
                "the buffer, created with writer=SelectiveWriter(sampler) of this sampler"
            )
        self._listen()
        pending = self.selection.draw(batch_size)
        info = {"priority_weight": pending.weights, "draw": torch.full((batch_size,), pending.number)}
        return pending.draw.slots[0], info

    def state_dict(self) -> dict[str, Any]:
        """The state; a restored sampler makes the same draws. Batches without feedback are not saved."""
        self._listen()
        return self.selection.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.selection.load_state_dict(state_dict)

    def dumps(self, path: Any) -> None:
        """Write the state into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: value.contiguous() for name, value in self.state_dict().items()}, folder / "sampler.safetensors"
        )

    def loads(self, path: Any) -> None:
        """Continue from such a folder."""
        self.load_state_dict(load_file(Path(path) / "sampler.safetensors"))

    def discard(self, batch: Any) -> None:
        """Drop a batch that was not drawn for training."""
        self.selection.discard(int(batch.get("draw")[0]))

    def _listen(self) -> None:
        """Report the last batch after its backward pass. Not from a prefetching thread: the backward may be running."""
        if self.attachment is not None and self.attachment.thread == threading.get_ident():
            self.attachment.report()

    def _empty(self) -> None:
        self.selection = self.selection.emptied()

    def check_process(self) -> None:
        """Raise in a process that was forked from the sampler's process."""
        if os.getpid() != self._process:
            raise UserError(_NOT_SHARED)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            raise UserError(_NOT_SHARED)
        return {**self.__dict__, "attachment": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_process": os.getpid()})


class SelectiveWriter(Writer):
    """Writes to the slots that the sampler chooses, so that the sampler knows which slots are new."""

    def __init__(self, sampler: SelectiveSampler):
        super().__init__()
        self._sampler = sampler
        self._write_count = 0

    def register_storage(self, storage: Any) -> None:
        """Set the storage to write to. It must have the capacity of the sampler."""
        selection = self._sampler.selection
        if storage.max_size != selection.capacity:
            raise UserError(
                f"the storage has {storage.max_size} slots and the sampler {selection.capacity}; use equal sizes"
            )
        if storage.ndim != 1:
            raise UserError(
                f"the storage has {storage.ndim} dimensions, and these samplers draw single transitions; use ndim=1"
            )
        for buffer in storage._attached_entities:
            _refuse(buffer, selection)
        super().register_storage(storage)
        self._sampler.has_writer = True

    def add(self, data: Any) -> int:
        """Store one transition."""
        self._sampler.check_process()
        slot = int(self._sampler.selection.place(1)[0])
        self._storage.set(slot, data)
        self._write_count += 1
        return slot

    def extend(self, data: Any) -> Tensor:
        """Store several transitions. Up to capacity − 1 of them at a time get distinct slots."""
        self._sampler.check_process()
        count = _rows(data, self._storage)
        most = max(1, self._sampler.selection.capacity - 1)
        parts = []
        for start in range(0, count, most):
            part = _slice(data, slice(start, start + most))
            rows = min(most, count - start)
            slots = torch.from_numpy(self._sampler.selection.place(rows).astype(np.int64))
            self._storage.set(slots, part)
            parts.append(slots)
        self._write_count += count
        return torch.cat(parts)

    def state_dict(self) -> dict[str, Any]:
        """The number of rows written. The sampler holds the rest of the state."""
        return {"write_count": self._write_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._write_count = state_dict["write_count"]

    def dumps(self, path: Any) -> None:
        """Write the state into a folder."""
        _check_checkpointer(self._storage.checkpointer, self._sampler.selection)  # it may have been set since
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "writer.json").write_text(json.dumps(self.state_dict()))

    def loads(self, path: Any) -> None:
        """Continue from such a folder."""
        self.load_state_dict(json.loads((Path(path) / "writer.json").read_text()))

    def _empty(self, empty_write_count: bool = True) -> None:
        if empty_write_count:
            self._write_count = 0


class Attachment:
    """Collects per-sample norms and TD errors of a loss, and reports them at the next draw or loss call."""

    def __init__(self, loss: Any, sampler: SelectiveSampler):
        if sampler.attachment is not None:
            raise ValueError("the sampler is already attached; detach() the old attachment first, or keep it")
        self._sampler = sampler
        self.thread = threading.get_ident()
        """Thread in which the loss was last computed."""
        self._heard: tuple[Pending, dict[str, Tensor]] | None = None
        self._taps: dict[str, Taps] = {}
        if Signal.GRADIENT_NORM in sampler.selection.needs:
            critics = getattr(loss, _SUPPORTED[type(loss)])
            networks = {"actor": loss.actor_network, "critic": critics}
            self._taps = {name: Taps(network, is_functional=True) for name, network in networks.items()}
        self._handles = [loss.register_forward_pre_hook(self._before), loss.register_forward_hook(self._after)]
        sampler.attachment = self

    def report(self) -> None:
        """Give the sampler the feedback of the last backward pass, if there was one."""
        if self._heard is None or (self._taps and all(tap.grad is None for tap in self._heard[1].values())):
            return
        (pending, taps), self._heard = self._heard, None
        for name, tap in taps.items():
            if tap.grad is not None:
                pending.gradient_norm[name] = squared_norms(tap.grad, pending.weights.to(tap.device))
        self._sampler.selection.report(pending)

    def detach(self) -> None:
        """Remove all hooks, after reporting the last batch."""
        self.report()
        self._sampler.attachment = None
        for handle in self._handles:
            handle.remove()
        for taps in self._taps.values():
            taps.remove()

    def _before(self, loss: Any, arguments: Any) -> None:
        self.thread = threading.get_ident()
        self.report()
        batch = arguments[0]
        number = int(batch.get("draw")[0]) if "draw" in batch.keys() else -1  # noqa: SIM118
        pending = self._sampler.selection.queue.get(number)
        if pending is None:
            return
        if loss.tensor_keys.priority_weight not in batch.keys():  # noqa: SIM118
            raise ValueError(f"the batch has no {loss.tensor_keys.priority_weight!r}; the loss would not be weighted")
        leaves = {name: taps.tap((len(pending.weights),)) for name, taps in self._taps.items()}
        for name, taps in self._taps.items():
            taps.connect(leaves[name])
        self._heard = (pending, leaves)

    def _after(self, loss: Any, arguments: Any, output: Any) -> None:
        del output
        for taps in self._taps.values():
            taps.disconnect()
        if self._heard is not None and Signal.TD_ERROR in self._sampler.selection.needs:
            error = arguments[0].get(loss.tensor_keys.priority).detach().abs().reshape(-1)
            # SACLoss stores the TD error, the other two its square.
            self._heard[0].td_errors = [error if isinstance(loss, SACLoss) else error.sqrt()]


def attach(loss: Any, sampler: SelectiveSampler) -> Attachment:
    """Give the sampler the norms and TD errors of every batch that the loss is computed on."""
    if type(loss) not in _SUPPORTED:
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(f"{type(loss).__name__} cannot be attached; supported are {names}")
    if loss.reduction != "none":
        raise UserError(
            f"reduction is {loss.reduction!r}, which divides weighted losses by the sum of their weights; create the "
            'loss with reduction="none" and take the mean yourself'
        )
    if loss.use_prioritized_weights is False:
        raise UserError("use_prioritized_weights is off, so the loss would not be weighted; leave it at its default")
    if isinstance(loss, SACLoss) and loss._version == 1:
        raise UserError("SACLoss with a value network trains each critic on part of the batch; leave value_network out")
    if not getattr(loss, "deactivate_vmap", True):
        raise UserError(
            "the critics run under vmap, where per-sample norms cannot be computed; use deactivate_vmap=True"
        )
    return Attachment(loss, sampler)


def _refuse(buffer: Any, selection: Selection) -> None:
    """Raise for a buffer whose draws would be wrong. If only `query` would be wrong, make `query` raise."""
    if buffer.shared:
        raise UserError(_NOT_SHARED)
    _check_checkpointer(buffer._init_checkpointer, selection)
    name, unit = type(selection.config).__name__, buffer._sample_unit
    if unit is not None and type(unit) is not Transition and (selection.needs or not selection.keeps_order):
        reason = "learns from single transitions" if selection.keeps_order else "overwrites at random"
        raise UserError(
            f"sample_unit is {type(unit).__name__}, and {name} {reason}; leave sample_unit out, or use Uniform()"
        )
    if not selection.keeps_order:
        if isinstance(buffer, HERReplayBuffer):
            raise UserError(_disorder("HERReplayBuffer", selection))
        buffer.query = partial(_raise, _disorder("query", selection))


def _check_checkpointer(checkpointer: Any, selection: Selection) -> None:
    """Raise for checkpointers that restore a next observation from the next slot."""
    kind = checkpointer if isinstance(checkpointer, type) else type(checkpointer)
    if not selection.keeps_order and issubclass(kind, FlatStorageCheckpointer):
        raise UserError(_disorder(kind.__name__, selection))


def _disorder(what: str, selection: Selection) -> str:
    name = type(selection.config).__name__
    return f"{what} needs transitions in order, and {name} overwrites at random; use {name}(overwrite='fifo')"


def _raise(line: str, *arguments: Any, **options: Any) -> NoReturn:
    del arguments, options
    raise UserError(line)


def _is_indexed_by_row(data: Any) -> bool:
    return isinstance(data, list | range | Tensor | np.ndarray) or is_tensor_collection(data)


def _rows(data: Any, storage: Any) -> int:
    """Number of transitions in the data given to `extend`."""
    if _is_indexed_by_row(data):
        counts = {len(data)}
    elif isinstance(storage, ListStorage):
        raise UserError(
            f"a ListStorage takes a list of transitions, not a {type(data).__name__}; use LazyTensorStorage"
        )
    else:
        counts = {len(leaf) for leaf in pytree.tree_leaves(data)}
    if len(counts) > 1:
        raise UserError(f"the leaves of the pytree have {sorted(counts)} rows; all must have the same number")
    if not any(counts):
        raise RuntimeError("Expected at least one element in extend.")  # the text of the host's own writers
    return counts.pop()


def _slice(data: Any, rows: slice) -> Any:
    return data[rows] if _is_indexed_by_row(data) else pytree.tree_map(lambda leaf: leaf[rows], data)
