"""The distribution as plain tensor operations. The clock is a tensor, so that a captured graph advances it."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.backends.fusing import fused
from aes_rl.backends.sum_tree import AbstractSumTree, is_sound
from aes_rl.streams import scale_to_integers
from aes_rl.types import Draw

Placing = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""Uniforms, slots to keep, is_fifo, is_adaptive, clock and stamps → the slot of every member, stamped."""


class TorchDistribution(AbstractDistribution[Tensor]):
    """Distribution of the `torch` and `triton` backends, which use different trees."""

    def __init__(
        self,
        floors: Sequence[float],
        overwrites: Sequence[Overwrite],
        tree: AbstractSumTree[Tensor],
        device: torch.device,
        place_one: Placing | None = None,
    ):
        """`place_one` is a kernel that places one transition per member."""
        members = len(floors)
        self._place_by_kernel = place_one
        self.capacity = capacity = tree.masses.shape[1]
        self.tree = tree
        self.floor = torch.tensor(floors, dtype=torch.float64, device=device).unsqueeze(-1)
        self.clock: Int[Tensor, ""] = torch.zeros((), dtype=torch.int64, device=device)
        self.stamps = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        self._is_fifo = torch.tensor([kind == "fifo" for kind in overwrites], device=device).unsqueeze(-1)
        self._is_adaptive = torch.tensor([kind == "adaptive" for kind in overwrites], device=device).unsqueeze(-1)
        self._all_fifo = all(kind == "fifo" for kind in overwrites)
        self._any_adaptive = "adaptive" in overwrites
        self.fault = torch.zeros(members, dtype=torch.bool, device=device)

    @property
    @override
    def size(self) -> Int[Tensor, ""]:
        return self.clock.clamp(max=self.capacity)

    @override
    def place(self, uniforms: Float[Tensor, "P 2K"]) -> Int[Tensor, "P K"]:
        count = uniforms.shape[1] // 2
        self.check_room(count)
        if count == 1 and self._place_by_kernel is not None:
            slot = self._place_one(uniforms, self._place_by_kernel)
            self.clock += 1
            return slot
        arrivals = self.clock + torch.arange(count, device=self.clock.device)
        slots = (arrivals % self.capacity).expand(len(uniforms), count)
        if not self._all_fifo:
            slots = self._slots_of_arrivals(arrivals, slots, uniforms)
        self.stamps.scatter_(1, slots, (arrivals + 1).int().expand_as(slots))
        self.clock += count
        return slots

    @override
    def write(
        self,
        members: slice,
        slots: Int[Tensor, "p B"],
        masses: Float[Tensor, "p B"],
        kept: Bool[Tensor, "p B"] | None = None,
    ) -> None:
        kept, fault = _screened(masses, kept, self.fault[members])
        self.fault[members] = fault
        self.tree.write(members, slots, masses, kept)

    @override
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        before = self.tree.masses[members, : masses.shape[1]]
        masses, fault = _screened_live(masses, before, self.size, self.fault[members])
        self.fault[members] = fault
        self.tree.refill(members, masses)

    @override
    def draw(self, uniforms: Float[Tensor, "P B"]) -> Draw:
        size = self.size
        slots, probabilities = self.tree.draw(uniforms, self.floor, size)
        return Draw(slots, probabilities, size, self.clock.clone())

    @override
    def is_current(self, draw: Draw) -> Bool[Tensor, "P B"]:
        return self.stamps.gather(1, draw.slots) <= draw.clock

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"masses": self.tree.masses, "floor": self.floor, "stamps": self.stamps, "clock": self.clock}

    @override
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.clock.copy_(state["clock"])
        self.refill(slice(0, self.stamps.shape[0]), state["masses"].to(self.clock.device))
        self.stamps.copy_(state["stamps"])
        self.floor.copy_(state["floor"])

    def _place_one(self, uniforms: Float[Tensor, "P 2"], place: Placing) -> Int[Tensor, "P 1"]:
        kept = torch.empty(len(uniforms), 1, dtype=torch.int64, device=uniforms.device)
        if self._any_adaptive:
            kept, _ = self.tree.draw(uniforms[:, :1], self.floor, self.size)
        return place(uniforms, kept, self._is_fifo, self._is_adaptive, self.clock, self.stamps)

    def _slots_of_arrivals(
        self, arrivals: Int[Tensor, "K"], in_turn: Int[Tensor, "P K"], uniforms: Float[Tensor, "P 2K"]
    ) -> Int[Tensor, "P K"]:
        """Slots of K new transitions: in turn until the buffer is full and for fifo members, else one to overwrite."""
        nowhere = torch.full_like(in_turn, self.capacity)
        kept = nowhere
        if self._any_adaptive:
            # Captured code cannot branch: an empty buffer draws too, and the slot is not used.
            drawn, _ = self.tree.draw(uniforms[:, : in_turn.shape[1]], self.floor, self.size.clamp(min=1))
            kept = torch.where(self._is_adaptive, drawn, nowhere)
        chosen: list[Int[Tensor, "P 1"]] = []
        count = in_turn.shape[1]
        for k in range(count):
            overwritten = self._any_but([kept[:, k : k + 1], *chosen], uniforms[:, count + k : count + k + 1])
            has_turn = self._is_fifo | (arrivals[k] < self.capacity)
            chosen.append(torch.where(has_turn, in_turn[:, k : k + 1], overwritten))
        return torch.cat(chosen, dim=1)

    def _any_but(self, excluded: list[Int[Tensor, "P 1"]], uniforms: Float[Tensor, "P 1"]) -> Int[Tensor, "P 1"]:
        """A uniform slot that is not excluded; an excluded slot of N excludes nothing.

        The r-th free slot is r, incremented once for every excluded slot at or below it, in increasing order.
        """
        taken = torch.cat(excluded, dim=1).sort(dim=1).values
        if len(excluded) > 1:
            repeated = torch.cat([torch.zeros_like(taken[:, :1]), (taken[:, 1:] == taken[:, :-1]).long()], dim=1)
            taken = torch.where(repeated > 0, self.capacity, taken).sort(dim=1).values
        free = self.capacity - (taken < self.capacity).sum(dim=1, keepdim=True)
        slot = scale_to_integers(uniforms, free.clamp(min=1))
        for k in range(taken.shape[1]):
            slot = slot + (slot >= taken[:, k : k + 1])
        return slot.clamp(max=self.capacity - 1)


@fused
def _screened(
    masses: Float[Tensor, "p B"], kept: Bool[Tensor, "p B"] | None, fault: Bool[Tensor, "p"]
) -> tuple[Bool[Tensor, "p B"], Bool[Tensor, "p"]]:
    """Which masses to write, and which members have an invalid one."""
    sound = is_sound(masses)
    if kept is None:
        return sound, fault | ~sound.all(dim=1)
    return kept & sound, fault | (kept & ~sound).any(dim=1)


@fused
def _screened_live(
    masses: Float[Tensor, "p n"], before: Float[Tensor, "p n"], size: Int[Tensor, ""], fault: Bool[Tensor, "p"]
) -> tuple[Float[Tensor, "p n"], Bool[Tensor, "p"]]:
    """Masses of live slots, with the old mass instead of an invalid one, and zeros for empty slots."""
    is_live = torch.arange(masses.shape[1], device=masses.device) < size
    sound = is_sound(masses)
    return torch.where(is_live, torch.where(sound, masses, before), 0), fault | (is_live & ~sound).any(dim=1)
