"""The CPU's sum tree: 16 children a node, one packed array a member, compiled loops."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import override

from aes_rl.engines import kernels
from aes_rl.engines.numba_engine import NumbaEngine
from aes_rl.errors import UserError
from aes_rl.samplers.sum_tree import AbstractSumTree, unsound_mass
from aes_rl.types import View


class NumbaTree(AbstractSumTree):
    """A 16-ary tree: two cache lines a node, five levels at a million slots, 0.53 bytes of parents a leaf."""

    def __init__(self, members: int, capacity: int):
        starts, nodes = [0], _padded(capacity)
        while nodes > 1:
            starts.append(starts[-1] + nodes)
            nodes = nodes // kernels.FAN_OUT
            nodes = _padded(nodes) if nodes > 1 else 1
        tree = NumbaEngine().zeros((members, _padded(starts[-1] + 1)), torch.float64)
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
    def write(
        self, members: slice, slots: View, masses: Float[Tensor, "p B"], kept: Bool[Tensor, "p B"] | None = None
    ) -> None:
        if kept is not None:
            # Repetitions of a slot are kept or not together here: it was overwritten since the draw or it was not.
            masses = torch.where(kept, masses, self.masses[members].gather(1, torch.from_numpy(slots)))
        if not kernels.write_masses(self.nodes, self.offsets, members.start, slots, masses.numpy()):
            raise UserError(unsound_mass(masses, members.start))

    @override
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        self.masses[members, : masses.shape[1]] = masses
        kernels.sum_groups(self.nodes, self.offsets, members.start, members.stop)

    @override
    def draw(self, uniforms: View, floor: View, size: int) -> tuple[View, View]:
        slots = np.empty(uniforms.shape, np.int64)
        probabilities = np.empty(uniforms.shape)
        kernels.draw_mixture(self.nodes, self.offsets, floor, size, uniforms, slots, probabilities)
        return slots, probabilities


def _padded(nodes: int) -> int:
    return -(-nodes // kernels.FAN_OUT) * kernels.FAN_OUT
