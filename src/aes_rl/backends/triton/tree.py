"""The block tree with Triton kernels for draws and writes."""

from itertools import pairwise

import torch
import triton
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.sum_tree import AbstractSumTree
from aes_rl.backends.torch.tree import BlockTree
from aes_rl.backends.triton import kernels
from aes_rl.types import Counter

_MOST_LEVELS = 4


class TritonTree(AbstractSumTree[Tensor]):
    """A block tree on an NVIDIA GPU."""

    def __init__(self, members: int, capacity: int, device: torch.device | str):
        self._blocks = BlockTree(members, capacity, device)
        self._levels, self._nodes, self._width = self._blocks.levels, self._blocks.nodes, self._blocks.width
        if len(self._levels) > _MOST_LEVELS:
            raise ValueError(f"capacity is {capacity:,}; a GPU supports at most {self._width**_MOST_LEVELS:,} slots")
        self.masses = self._blocks.masses

    @property
    @override
    def totals(self) -> Float[Tensor, "P 1"]:
        return self._blocks.totals

    @override
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        self._blocks.refill(members, masses)

    @override
    def write(
        self,
        members: slice,
        slots: Int[Tensor, "p B"],
        masses: Float[Tensor, "p B"],
        kept: Bool[Tensor, "p B"] | None = None,
    ) -> None:
        slots, masses = slots.contiguous(), masses.contiguous()
        kept = None if kept is None else kept.contiguous()
        count = slots.shape[1]
        levels = [level[members] for level in self._levels]
        if count == 1:
            padded = [*levels, *[levels[0]] * (_MOST_LEVELS - len(levels))]
            kernels.write_one[(len(slots),)](
                slots, masses, slots if kept is None else kept, *padded, *(level.shape[1] for level in padded),
                HAS_KEPT=kept is not None, LEVELS=len(levels), WIDTH=self._width, num_warps=1,
            )  # fmt: skip
            return
        kernels.write_leaves[tuple(slots.shape)](
            levels[0], levels[0].stride(0), slots, masses, slots if kept is None else kept, count,
            HAS_KEPT=kept is not None, BLOCK=triton.next_power_of_2(count), num_warps=1,
        )  # fmt: skip
        divisor = 1
        for below, above in pairwise(levels):
            divisor *= self._width
            kernels.sum_blocks[tuple(slots.shape)](
                below, below.stride(0), above, above.stride(0), slots, count, DIVISOR=divisor, WIDTH=self._width,
                num_warps=1,
            )  # fmt: skip

    @override
    def draw(
        self, uniforms: Float[Tensor, "P B"], floor: Float[Tensor, "P 1"], size: Counter
    ) -> tuple[Int[Tensor, "P B"], Float[Tensor, "P B"]]:
        uniforms = uniforms.contiguous()
        slots = torch.empty(uniforms.shape, dtype=torch.int64, device=uniforms.device)
        probabilities = torch.empty_like(uniforms)
        padding = _MOST_LEVELS - len(self._levels)
        levels = [*self._levels, *[self._levels[0]] * padding]
        nodes = [*self._nodes, *[1] * padding]
        kernels.draw[tuple(uniforms.shape)](
            uniforms, floor, size, *levels, *(level.shape[1] for level in levels), *nodes, slots, probabilities,
            uniforms.shape[1], LEVELS=len(self._levels), WIDTH=self._width, num_warps=1,
        )  # fmt: skip
        return slots, probabilities
