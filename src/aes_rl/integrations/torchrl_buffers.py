"""Samplers in TorchRL's replay buffers: a Sampler that draws and a Writer that asks it where to write."""

import json
import os
from collections.abc import Callable
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
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.rule import SamplerConfig

require("torchrl", "0.14", "0.15", "torchrl")
from tensordict import TensorDictBase, is_tensor_collection  # type: ignore[import-untyped]  # noqa: E402
from torchrl.data import ReplayBuffer  # noqa: E402
from torchrl.data.replay_buffers.checkpointers import FlatStorageCheckpointer  # noqa: E402
from torchrl.data.replay_buffers.her import HERReplayBuffer  # noqa: E402
from torchrl.data.replay_buffers.sample_units import Transition  # noqa: E402
from torchrl.data.replay_buffers.samplers import Sampler  # noqa: E402
from torchrl.data.replay_buffers.storages import ListStorage, Storage  # noqa: E402
from torchrl.data.replay_buffers.writers import Writer  # noqa: E402

_NOT_SHARED = (
    "the buffer is shared between processes (shared=True, or it was passed to another process), and the sampler exists "
    "in one: rows written by the others would never be drawn; leave shared out, and draw and write in one process"
)


class SelectiveSampler(Sampler):
    """Draws slots with a sampler. Batches contain `priority_weight` and `draw`, the number of the batch."""

    def __init__(
        self,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        *,
        capacity: int,
        seed: int = 0,
        total_updates: int | None = None,
    ):
        """Create a sampler for an empty storage.

        Args:
            sampler: A configuration such as `Adaptive()`, or a sampler's name such as "adaptive".
            capacity: Capacity of the storage.
            seed: Seed of the draws.
            total_updates: Number of updates of the run, which annealed samplers need.
        """
        self.selection = Selection(sampler, capacity, seed, total_updates, draws_ahead=True)
        self.listener: Callable[[], None] | None = None
        """Reports the last batch after its backward pass."""
        self.storage: Storage | None = None
        """The storage whose SelectiveWriter uses this sampler to choose slots."""
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
        if self.storage is None:
            raise UserError(
                "the buffer has a SelectiveSampler and no SelectiveWriter, so the sampler cannot know what is stored; "
                "use writer=SelectiveWriter(sampler)"
            )

    def sample(self, storage: Storage, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
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
        return torch.from_numpy(slots_of(pending)), info

    def state_dict(self) -> dict[str, Tensor]:
        """The state; a restored sampler makes the same draws. Batches without feedback are not saved."""
        self._listen()
        return self.selection.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self.selection.load_state_dict(state_dict)

    def dumps(self, path: str | Path) -> None:
        """Write the state into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: value.contiguous() for name, value in self.state_dict().items()}, folder / "sampler.safetensors"
        )

    def loads(self, path: str | Path) -> None:
        """Continue from such a folder."""
        self.load_state_dict(load_file(Path(path) / "sampler.safetensors"))

    def discard(self, batch: TensorDictBase) -> None:
        """Drop a batch that was not drawn for training."""
        self.selection.discard(int(batch.get("draw")[0]))

    def _listen(self) -> None:
        if self.listener is not None:
            self.listener()

    def _empty(self) -> None:
        self.selection = self.selection.emptied()

    def check_process(self) -> None:
        """Raise in a process that was forked from the sampler's process."""
        if os.getpid() != self._process:
            raise UserError(_NOT_SHARED)

    def __getstate__(self) -> dict[str, object]:
        if get_spawning_popen() is not None:
            raise UserError(_NOT_SHARED)
        return {**self.__dict__, "listener": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update({**state, "_process": os.getpid()})


class SelectiveWriter(Writer):
    """Writes to the slots that the sampler chooses, so that the sampler knows which slots are new."""

    def __init__(self, sampler: SelectiveSampler):
        super().__init__()
        self._sampler = sampler
        self._write_count = 0

    def register_storage(self, storage: Storage) -> None:
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
        self._sampler.storage = storage

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

    def state_dict(self) -> dict[str, int]:
        """The number of rows written. The sampler holds the rest of the state."""
        return {"write_count": self._write_count}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue from a saved state."""
        self._write_count = state_dict["write_count"]

    def dumps(self, path: str | Path) -> None:
        """Write the state into a folder."""
        _check_checkpointer(self._storage.checkpointer, self._sampler.selection)  # it may have been set since
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "writer.json").write_text(json.dumps(self.state_dict()))

    def loads(self, path: str | Path) -> None:
        """Continue from such a folder."""
        self.load_state_dict(json.loads((Path(path) / "writer.json").read_text()))

    def _empty(self, empty_write_count: bool = True) -> None:
        if empty_write_count:
            self._write_count = 0


def _refuse(buffer: ReplayBuffer, selection: Selection) -> None:
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


def _check_checkpointer(checkpointer: object, selection: Selection) -> None:
    """Raise for checkpointers that restore a next observation from the next slot."""
    kind = checkpointer if isinstance(checkpointer, type) else type(checkpointer)
    if not selection.keeps_order and issubclass(kind, FlatStorageCheckpointer):
        raise UserError(_disorder(kind.__name__, selection))


def _disorder(what: str, selection: Selection) -> str:
    name = type(selection.config).__name__
    return f"{what} needs transitions in order, and {name} overwrites at random; use {name}(overwrite='fifo')"


def _raise(line: str, *arguments: object, **options: object) -> NoReturn:
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
