"""The sum tree as plain tensor operations: runs on any device and can be captured in a CUDA graph.

Nodes are wide and the tree is shallow, because on a GPU the number of kernels matters and their width does not: three
levels are enough for two million slots.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.sum_tree import AbstractSumTree
from aes_rl.streams import scale_to_integers
from aes_rl.types import Counter, last_position


class BlockTree(AbstractSumTree[Tensor]):
    """A tree of block sums; each level is [P, blocks, width]."""

    def __init__(self, members: int, capacity: int, device: torch.device | str, width: int = 128):
        self.width = width
        self.levels: list[Float[Tensor, "P blocks width"]] = []
        self.nodes: list[int] = []
        nodes = capacity
        while True:
            self.nodes.append(nodes)
            blocks = -(-nodes // width)
            self.levels.append(torch.zeros(members, blocks, width, dtype=torch.float64, device=device))
            if blocks == 1:
                break
            nodes = blocks
        self.masses = self.levels[0].view(members, -1)[:, :capacity]

    @property
    @override
    def totals(self) -> Float[Tensor, "P 1"]:
        return self.levels[-1].sum(dim=-1)

    @override
    def write(
        self,
        members: slice,
        slots: Int[Tensor, "p B"],
        masses: Float[Tensor, "p B"],
        kept: Bool[Tensor, "p B"] | None = None,
    ) -> None:
        nodes, values = slots, _last_of_repeated(slots, masses, kept, self.masses[members])
        for depth, level in enumerate(self.levels):
            level.view(level.shape[0], -1)[members].scatter_(1, nodes, values)
            if depth + 1 < len(self.levels):
                nodes = nodes // self.width
                values = _rows(level[members], nodes).sum(dim=-1)

    @override
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        self.masses[members, : masses.shape[1]] = masses
        for level, above in zip(self.levels, self.levels[1:], strict=False):
            sums = level[members].sum(dim=-1)
            above.view(above.shape[0], -1)[members, : sums.shape[1]] = sums

    @override
    def draw(
        self, uniforms: Float[Tensor, "P B"], floor: Float[Tensor, "P 1"], size: Counter
    ) -> tuple[Int[Tensor, "P B"], Float[Tensor, "P B"]]:
        smallest = torch.finfo(torch.float64).tiny
        by_floor = scale_to_integers(uniforms / floor.clamp(min=smallest), size)
        beyond = (uniforms - floor) / (1 - floor).clamp(min=smallest)
        by_mass = self._descend(beyond.clamp(0, 1)).clamp(max=size - 1)
        slots = torch.where(uniforms < floor, by_floor, by_mass)
        shares = self.masses.gather(1, slots) / self.totals
        return slots, (1 - floor) * shares + floor / size

    def _descend(self, fractions: Float[Tensor, "P B"]) -> Int[Tensor, "P B"]:
        """The slot at which the cumulative mass reaches a fraction of the total."""
        node = torch.zeros_like(fractions, dtype=torch.int64)
        wanted = fractions * self.totals
        for level, nodes in zip(reversed(self.levels), reversed(self.nodes), strict=True):
            reached = _rows(level, node).cumsum(dim=-1)
            child = (reached <= wanted.unsqueeze(-1)).sum(dim=-1).clamp(max=self.width - 1)
            before = torch.where(child > 0, reached.gather(-1, (child - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1), 0)
            wanted = wanted - before
            # Rounding may lead past the last mass; the last node is then correct up to rounding.
            node = (node * self.width + child).clamp(max=nodes - 1)
        return node


def _rows(level: Float[Tensor, "p blocks width"], blocks: Int[Tensor, "p B"]) -> Float[Tensor, "p B width"]:
    """The blocks of each member at the given positions."""
    members, count, width = level.shape
    first = torch.arange(0, members * count, count, device=level.device).unsqueeze(-1)
    return level.reshape(members * count, width).index_select(0, (first + blocks).view(-1)).view(*blocks.shape, width)


def _last_of_repeated(
    slots: Int[Tensor, "p B"],
    masses: Float[Tensor, "p B"],
    kept: Bool[Tensor, "p B"] | None,
    before: Float[Tensor, "p N"],
) -> Float[Tensor, "p B"]:
    """For every repetition of a slot the mass of the last one that is kept, or the old mass if none is."""
    counts = torch.ones_like(slots, dtype=torch.bool) if kept is None else kept
    last, exists = last_position(slots, counts)
    return torch.where(exists, masses.gather(1, last), before.gather(1, slots))
