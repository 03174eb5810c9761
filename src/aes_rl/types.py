"""The records that storage, sampler and learner hand to one another.

Shapes are letters throughout the package: P members, B draws per batch, K transitions written at once,
N capacity in slots, n live slots, O observation size, A action size.
"""

from collections.abc import Mapping
from enum import Flag, auto
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BackendName = Literal["numba", "torch", "triton"]

CRITIC = "critic"
"""The name of the critics among the networks. Where the actor has its own draw, all other networks share it."""

Counter = int | Int[Tensor, ""]
"""A clock or a size: a plain number where the host moves it, a tensor where captured code does."""


class Array(Protocol):
    """Numbers in the form that a backend's loops take: a NumPy array or a tensor.

    Converting between the two costs a microsecond, a tenth of what a compiled loop may cost. So what stays inside a
    backend is converted only where a tensor is needed (`as_tensor`).
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of every axis."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> Self: ...

    def __setitem__(self, key: slice, value: float, /) -> None: ...


AnyArray = TypeVar("AnyArray", bound=Array)
"""The arrays of one backend."""


class Signal(Flag):
    """What a selection rule needs from the learner."""

    NONE = 0
    TD_ERROR = auto()
    """The temporal-difference error of every drawn slot, [P, B]."""
    GRADIENT_NORM = auto()
    """The squared norm of every drawn slot's gradient, [P, B] per network."""
    EVERY_GRADIENT_NORM = auto()
    """The squared gradient norm of all live slots, [P, n], given to `observe_all` (full information)."""


Values = Tensor | np.ndarray[Any, np.dtype[np.generic]]
"""Numbers in either form; on the CPU, arrays from an environment need no conversion.

Not written with `NDArray`: since NumPy 2.5 that is an alias which jaxtyping cannot look into.
"""


class Transition(NamedTuple):
    """One step of every member's environment. `terminated` is 1 where the task ended; a time limit does not count.

    The fields are tensors or, on the CPU, NumPy arrays.
    """

    observation: Float[Values, "P O"]
    action: Float[Values, "P A"]
    reward: Float[Values, "P"]
    next_observation: Float[Values, "P O"]
    terminated: Float[Values, "P"]


class Batch:
    """The transitions read for a draw: views into packed rows, created on first access."""

    def __init__(self, rows: Float[Tensor, "P B D"], observation_size: int, action_size: int):
        self.rows = rows
        self._observation_size = observation_size
        self._action_size = action_size

    @cached_property
    def observation(self) -> Float[Tensor, "P B O"]:
        """The observations."""
        return self.rows[..., : self._observation_size]

    @cached_property
    def action(self) -> Float[Tensor, "P B A"]:
        """The actions."""
        return self.rows[..., self._observation_size : self._observation_size + self._action_size]

    @cached_property
    def next_observation(self) -> Float[Tensor, "P B O"]:
        """The next observations."""
        return self.rows[..., self._observation_size + self._action_size : -2]

    @cached_property
    def reward(self) -> Float[Tensor, "P B"]:
        """The rewards."""
        return self.rows[..., -2]

    @cached_property
    def terminated(self) -> Float[Tensor, "P B"]:
        """1 where the transition ended in a terminal state, 0 elsewhere; truncation by a time limit is 0."""
        return self.rows[..., -1]


class ActorBatch(NamedTuple):
    """The batch of the actor's loss, and of the losses on the same observations, where it has its own draw."""

    batch: Batch
    """Of which only the observations count."""
    weights: Float[Tensor, "P B"]


class Draw:
    """Slots with the probabilities under which they were drawn."""

    def __init__(self, slots: Array, probabilities: Array, size: Counter, clock: Counter):
        self.slots_view = slots
        self.probabilities_view = probabilities
        self.size = size
        """Live slots of each member when the draw was made."""
        self.clock = clock
        """Insertions per member when the draw was made. Feedback on slots written after it does not count."""

    @cached_property
    def slots(self) -> Int[Tensor, "P B"]:
        """The drawn slots."""
        return as_tensor(self.slots_view)

    @cached_property
    def probabilities(self) -> Float[Tensor, "P B"]:
        """Probability of each slot under the full mixture, floor included; float64."""
        return as_tensor(self.probabilities_view)

    def of_members(self, members: slice) -> "Draw":
        """The part of the draw that concerns some members."""
        return Draw(self.slots_view[members], self.probabilities_view[members], self.size, self.clock)


def as_tensor(array: Array) -> Tensor:
    """The tensor that shares its memory with an array."""
    return array if isinstance(array, Tensor) else torch.from_numpy(array)


class Signals(NamedTuple):
    """What the learner reports on a draw. A field that no rule needs may stay empty."""

    td_error: Float[Tensor, "P B"] | None = None
    """Temporal-difference error, the mean of its absolute value over the critics; only the absolute value counts."""
    gradient_norm: Mapping[str, Float[Tensor, "P B"]] = {}
    """Squared norm of each sample's unweighted gradient by network name, such as `{"actor": …, "critic": …}`."""

    def of_members(self, members: slice) -> "Signals":
        """The part that concerns some members."""
        td_error = None if self.td_error is None else self.td_error[members]
        return Signals(td_error, {name: norm[members] for name, norm in self.gradient_norm.items()})


class Report:
    """What a rule receives after an update: the draw, the learner's signals, and where they count."""

    def __init__(
        self, draw: Draw, signals: Signals, is_current: Array, norms: Mapping[str, Array], error: Array | None = None
    ):
        self.draw = draw
        self.signals = signals
        self.is_current_view = is_current
        self.norm_views, self.error_view = norms, error
        """The gradient norms and the TD errors of `signals` in the form that the backend's loops take."""

    @cached_property
    def is_current(self) -> Bool[Tensor, "p B"]:
        """Where the slot still holds the transition that was drawn. Elsewhere nothing may be learned."""
        return as_tensor(self.is_current_view)

    def last_of_slot(self, values: Float[Tensor, "p B"], before: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """Of every draw, the value at the last current draw of the same slot, or `before` where there is none.

        Repeated slots then have one value, so that it can be written by index.
        """
        last, exists = last_position(self.draw.slots, self.is_current)
        return torch.where(exists, values.gather(1, last), before)


def last_position(
    slots: Int[Tensor, "p B"], counts: Bool[Tensor, "p B"]
) -> tuple[Int[Tensor, "p B"], Bool[Tensor, "p B"]]:
    """Where in the batch each slot occurs last among the draws that count, and whether it does.

    Needed because an indexed write of different values to one place keeps an arbitrary one.
    """
    positions = torch.arange(slots.shape[1], device=slots.device)
    same = (slots.unsqueeze(-1) == slots.unsqueeze(-2)) & counts.unsqueeze(-2)
    last = torch.where(same, positions, -1).amax(dim=-1)
    return last.clamp(min=0), last >= 0
