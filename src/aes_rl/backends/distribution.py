"""The distribution over live slots, which all rules share: masses, floor, insertion clock and placement."""

from abc import ABC, abstractmethod
from typing import Generic, Literal, get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends.sum_tree import AbstractSumTree
from aes_rl.types import AnyArray, Counter, Draw

Overwrite = Literal["adaptive", "uniform", "fifo"]
"""Which slot is overwritten when the buffer is full: one drawn in proportion to 1 − p, a uniform one, or the oldest."""
OVERWRITES: tuple[Overwrite, ...] = get_args(Overwrite)


class AbstractDistribution(ABC, Generic[AnyArray]):
    """p(i) = (1−κ)·m(i)/Σm + κ/n over the live slots of P members, for any masses m.

    The only clock is the number of insertions per member; the live size follows from it.
    """

    tree: AbstractSumTree[AnyArray]
    floor: Float[Tensor, "P 1"]
    """κ of each member."""
    stamps: Int[Tensor, "P N"]
    """Number of the insertion that last wrote each slot, from 1; 0 for an empty slot. int32 allows two billion."""
    clock: Counter
    """Number of insertions per member so far."""
    fault: Bool[Tensor, "P"]
    """Members whose rule returned a mass that is not finite and positive, on backends that cannot raise immediately."""

    @property
    @abstractmethod
    def size(self) -> Counter:
        """Number of live slots per member."""

    @abstractmethod
    def place(self, uniforms: AnyArray) -> AnyArray:
        """Choose distinct slots [P, K] for K new transitions per member, stamp them and advance the clock.

        Until the buffer is full, slots are filled in order. Then each member's `Overwrite` decides. For every new
        transition, `adaptive` draws one slot from p, which is kept, and overwrites a uniform one of the others; for
        K = 1 a slot is overwritten with probability exactly (1 − p)/(N − 1). Of the uniforms [P, 2K], the first K draw
        the slots to keep and the others the slots to overwrite. The caller writes the new masses.
        """

    @abstractmethod
    def write(self, members: slice, slots: AnyArray, masses: AnyArray | Tensor, kept: AnyArray | None = None) -> None:
        """Set the masses of live slots; entries where the mask `kept` is false are skipped (None: write all).

        A mass must be finite and positive. If one is not, the backend `numba` raises; on the others the slot keeps its
        old mass and `fault` is set, because raising would wait for the device.
        """

    @abstractmethod
    def refill(self, members: slice, masses: AnyArray | Tensor) -> None:
        """Set the masses of all n live slots to the first n of those given; they are validated as in `write`."""

    @abstractmethod
    def draw(self, uniforms: AnyArray) -> Draw:
        """Draw B slots per member, independently and with replacement, from uniforms [P, B]."""

    @abstractmethod
    def is_current(self, draw: Draw) -> Bool[Tensor, "P B"] | None:
        """Whether each drawn slot still holds the transition that was drawn; None if all certainly do."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """All tensors that change over time."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy a saved state in place and recompute the sums of the tree."""

    def probabilities(self) -> Float[Tensor, "P n"]:
        """The probability p(i) of every live slot. Waits for the device."""
        size = int(self.size)
        masses = self.tree.masses[:, :size]
        return (1 - self.floor) * masses / self.tree.totals + self.floor / size

    def check_room(self, count: int) -> None:
        """Raise unless `count` slots can be overwritten at once: up to N − 1, at least 1, as `adaptive` keeps one."""
        most = max(1, self.stamps.shape[1] - 1)
        if count > most:
            raise ValueError(
                f"{count} transitions at once do not fit a capacity of {self.stamps.shape[1]}; place at most {most}"
            )
