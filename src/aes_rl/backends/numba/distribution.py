"""The distribution on the CPU: the clock is an int, the loops are compiled."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.backends.numba import loops
from aes_rl.backends.numba.tree import NumbaTree, Numbers, as_array, zeros
from aes_rl.backends.sum_tree import unsound_mass
from aes_rl.errors import UserError
from aes_rl.types import Draw

_KINDS: dict[Overwrite, int] = {
    "fifo": loops.FIFO,
    "uniform": loops.UNIFORM,
    "adaptive": loops.ADAPTIVE,
}


class NumbaDistribution(AbstractDistribution[Numbers]):
    """Distribution of the `numba` backend."""

    def __init__(self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int):
        self.capacity = capacity
        self.tree: NumbaTree = NumbaTree(len(floors), capacity)
        self.floor = torch.tensor(floors, dtype=torch.float64).unsqueeze(-1)
        self.clock: int = 0
        self.stamps = zeros((len(floors), capacity), torch.int32)
        self._stamps = self.stamps.numpy()
        self._floor = self.floor.numpy()
        self._kinds = np.array([_KINDS[kind] for kind in overwrites])
        self.fault = torch.zeros(len(floors), dtype=torch.bool)

    @property
    @override
    def size(self) -> int:
        return min(self.clock, self.capacity)

    @override
    def place(self, uniforms: Numbers) -> Numbers:
        count = uniforms.shape[1] // 2
        if self.clock + count >= 2**31:
            raise OverflowError("insertion stamps cannot count more than two billion insertions per member")
        if count >= self.capacity:
            self.check_room(count)
        slots = np.empty((len(uniforms), count), np.int64)
        loops.place(
            self.tree.nodes, self.tree.offsets, self._floor, self._kinds, self.clock, self._stamps,
            uniforms, slots,
        )  # fmt: skip
        self.clock += count
        return slots

    @override
    def write(self, members: slice, slots: Numbers, masses: Numbers | Tensor, kept: Numbers | None = None) -> None:
        self.tree.write(members, slots, masses, kept)

    @override
    def refill(self, members: slice, masses: Numbers | Tensor) -> None:
        live = as_array(masses)[:, : self.size]
        if not loops.are_sound(live):
            raise UserError(unsound_mass(torch.from_numpy(live), members.start))
        self.tree.refill(members, live)

    @override
    def draw(self, uniforms: Numbers) -> Draw:
        size = self.size
        slots, probabilities = self.tree.draw(uniforms, self._floor, size)
        return Draw(slots, probabilities, size, self.clock)

    @override
    def is_current(self, draw: Draw) -> Bool[Tensor, "P B"] | None:
        if draw.clock == self.clock:
            return None
        if draw.clock > self.clock or draw.size > self.size:
            raise ValueError(f"the draw is of another sampler, with {draw.clock} insertions; this one has {self.clock}")
        return self.stamps.gather(1, draw.slots) <= draw.clock

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {
            "masses": self.tree.masses,
            "floor": self.floor,
            "stamps": self.stamps,
            "clock": torch.tensor(self.clock),
        }

    @override
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.clock = int(state["clock"])
        self.tree.masses[:, self.size :] = 0  # `refill` keeps the leaves of empty slots
        self.refill(slice(0, len(self._kinds)), state["masses"].cpu())
        self.stamps.copy_(state["stamps"])
        self.floor.copy_(state["floor"])
