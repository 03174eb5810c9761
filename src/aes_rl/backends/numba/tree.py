"""The sum tree on the CPU: 16 leaves or 4 children per node, one packed array per member, compiled loops."""

import math
import mmap
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.numba import loops
from aes_rl.backends.sum_tree import AbstractSumTree, unsound_mass
from aes_rl.errors import UserError
from aes_rl.types import Counter

Numbers = NDArray[np.generic]
NUMPY_TYPES: dict[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int32: np.int32,
}

_CACHE_LINE, _HUGE_PAGE = 64, 2**21
"""Bytes."""


class NumbaTree(AbstractSumTree[Numbers]):
    """Sixteen leaves per lowest node, four children per node above: 0.67 bytes of parents per leaf.

    Large lowest nodes keep the parents small; small nodes above them need little arithmetic per draw.
    """

    def __init__(self, members: int, capacity: int):
        nodes = -(-capacity // loops.LEAVES)
        starts = [0, nodes * loops.LEAVES]
        while nodes > 1:
            nodes = -(-nodes // loops.FAN_OUT)
            starts.append(starts[-1] + nodes * loops.FAN_OUT)
        whole_lines = -(-(starts[-1] + 1) // loops.LEAVES) * loops.LEAVES
        tree = zeros((members, whole_lines), torch.float64)
        self.masses = tree[:, :capacity]
        self._totals = tree[:, starts[-1] : starts[-1] + 1]
        self.nodes = tree.numpy()
        """All levels of each member, leaves first."""
        self.offsets = np.array(starts)
        """Where each level starts; the last is the total."""

    @property
    @override
    def totals(self) -> Float[Tensor, "P 1"]:
        return self._totals

    @override
    def write(self, members: slice, slots: Numbers, masses: Numbers | Tensor, kept: Numbers | None = None) -> None:
        masses = as_array(masses)
        kept = all_true(*slots.shape) if kept is None else kept
        if not loops.write_masses(self.nodes, self.offsets, members.start, slots, masses, kept):
            raise UserError(unsound_mass(torch.from_numpy(np.where(kept, masses, 1.0)), members.start))

    @override
    def refill(self, members: slice, masses: Numbers | Tensor) -> None:
        loops.refill(self.nodes, self.offsets, members.start, as_array(masses))

    @override
    def draw(self, uniforms: Numbers, floor: Numbers, size: Counter) -> tuple[Numbers, Numbers]:
        slots = np.empty(uniforms.shape, np.int64)
        probabilities = np.empty(uniforms.shape)
        loops.draw_mixture(self.nodes, self.offsets, floor, size, uniforms, slots, probabilities)
        return slots, probabilities


def as_array(values: Tensor | Numbers) -> Numbers:
    """The array that shares its memory with a tensor."""
    return values.numpy() if isinstance(values, Tensor) else values


@cache
def all_true(members: int, batch: int) -> NDArray[np.bool_]:
    """An array of ones, which is shared: do not write to it."""
    return np.ones((members, batch), np.bool_)


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros for arrays with random access, aligned so that a node of the tree fills whole cache lines.

    Large arrays are in huge pages where the system has them. With ordinary pages, 256 random reads evict the program's
    own entries from the TLB, which slows down everything else.
    """
    kind = np.dtype(NUMPY_TYPES[dtype])
    size = math.prod(shape) * kind.itemsize
    if size < _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory, boundary = np.zeros(size + _CACHE_LINE, np.uint8), _CACHE_LINE
    else:
        pages = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_HUGEPAGE)
        memory, boundary = np.frombuffer(pages, np.uint8), _HUGE_PAGE
    start = -memory.ctypes.data % boundary
    return torch.from_numpy(memory[start : start + size].view(kind).reshape(shape))
