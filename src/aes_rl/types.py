"""The records that storage, chooser and learner hand to one another.

Shapes are letters throughout the package: P members, B draws in a batch, K transitions written at once,
N capacity in slots, n live slots, O observation size, A action size.
"""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

EngineName = Literal["numba", "torch", "triton"]

Counter = int | Int[Tensor, ""]
"""A clock or a size: a plain number on the `numba` engine, a tensor on the `torch` engine."""


View = Any
"""Numbers in the form an engine's loops take: a NumPy array on the `numba` engine, a tensor on the `torch` engine.

Crossing between the two costs a microsecond, a tenth of what a loop itself may cost, so what stays inside an engine is
not wrapped until somebody asks.
"""


class Signal(Flag):
    """What a selection rule wants to hear back from the learner."""

    NONE = 0
    TD_ERROR = auto()
    """The temporal-difference error of every drawn slot, [P, B]."""
    GRADIENT_NORM = auto()
    """The squared per-sample gradient norm (S2) of every drawn slot, [P, B] per network."""
    EVERY_GRADIENT_NORM = auto()
    """The squared gradient norm of all live slots, [P, n], handed to `observe_all` (S8)."""


class Transition(NamedTuple):
    """One step of every member's environment. `terminated` is 1 where the task ended; a time limit does not count."""

    observation: Float[Tensor, "P O"]
    action: Float[Tensor, "P A"]
    reward: Float[Tensor, "P"]
    next_observation: Float[Tensor, "P O"]
    terminated: Float[Tensor, "P"]


class Draw:
    """Slots with the probabilities they were drawn under, at the moment of the draw."""

    __slots__ = ("clock", "probabilities_view", "size", "slots_view")

    def __init__(self, slots: View, probabilities: View, size: Counter, clock: Counter):
        self.slots_view = slots
        self.probabilities_view = probabilities
        self.size = size
        """Live slots of each member when the draw was made."""
        self.clock = clock
        """Insertions per member when the draw was made; feedback skips slots written after it."""

    @property
    def slots(self) -> Int[Tensor, "P B"]:
        """The drawn slots."""
        return as_tensor(self.slots_view)

    @property
    def probabilities(self) -> Float[Tensor, "P B"]:
        """Chance of each slot under the full mixture of S6, floor included; float64."""
        return as_tensor(self.probabilities_view)

    def of_members(self, members: slice) -> "Draw":
        """The part of the draw that concerns some members."""
        return Draw(self.slots_view[members], self.probabilities_view[members], self.size, self.clock)


def as_tensor(view: View) -> Tensor:
    """The tensor that an engine's view shows."""
    return view if isinstance(view, Tensor) else torch.from_numpy(view)


class Signals(NamedTuple):
    """What the learner reports of a draw. A field that no rule needs may stay empty."""

    td_error: Float[Tensor, "P B"] | None = None
    """Temporal-difference error, the mean of its absolute value over the critics; only the absolute value counts."""
    gradient_norm: Mapping[str, Float[Tensor, "P B"]] = {}
    """Squared norm of the unweighted per-sample gradient (S2), by network name, such as `{"actor": …, "critic": …}`."""
