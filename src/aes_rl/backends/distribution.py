"""The distribution over live slots that every rule shares: masses, floor, clock, and where the next transition goes."""

from abc import ABC, abstractmethod
from typing import Generic, Literal, get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends.sum_tree import AbstractSumTree
from aes_rl.types import AnyArray, Counter, Draw

Overwrite = Literal["adaptive", "uniform", "fifo"]
"""Which slot is overwritten when the buffer is full: by 1 − p, any with the same probability, or the oldest."""
OVERWRITES: tuple[Overwrite, ...] = get_args(Overwrite)


class AbstractDistribution(ABC, Generic[AnyArray]):
    """p(i) = (1−κ)·m(i)/Σm + κ/n over the live slots of P members, for any masses m.

    The only clock is the number of insertions per member; the live size follows from it.
    """

    tree: AbstractSumTree[AnyArray]
    floor: Float[Tensor, "P 1"]
    """κ of each member."""
    stamps: Int[Tensor, "P N"]
    """The insertion that last wrote each slot, counted from 1. Int32 lasts for two billion of them."""
    clock: Counter
    """Insertions so far."""
    fault: Bool[Tensor, "P"]
    """Members whose rule gave a mass that is not finite and positive, where that could not raise at once."""

    @property
    @abstractmethod
    def size(self) -> Counter:
        """Live slots of each member."""

    @abstractmethod
    def place(self, uniforms: AnyArray) -> AnyArray:
        """Distinct slots [P, K] for K new transitions of every member; stamps them and moves the clock.

        Of the uniforms [P, 2K] the first K say which slot to keep, the others which of the rest to overwrite. While
        there is room, slots are appended. Then `adaptive` draws one slot from p to keep and overwrites a uniform one of
        the others, which is exactly (1 − p)/(N − 1). The caller writes the masses of the new slots.
        """

    @abstractmethod
    def write(
        self, members: slice, slots: AnyArray, masses: Float[Tensor, "p B"], kept: Bool[Tensor, "p B"] | None = None
    ) -> None:
        """Set the masses of some live slots, where `kept`. One that is not finite and positive never gets in.

        It raises at once where the host sees it; elsewhere the slot keeps its mass and `fault` is set.
        """

    @abstractmethod
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        """Set the masses of all live slots, the first of those given, in the same way."""

    @abstractmethod
    def draw(self, uniforms: AnyArray) -> Draw:
        """Draw B slots per member, independently and with replacement, from uniforms [P, B]."""

    @abstractmethod
    def is_current(self, draw: Draw) -> Bool[Tensor, "P B"] | None:
        """Whether each drawn slot still holds the transition that was drawn; None where all are known to."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Everything that changes over time."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy a saved state in place and resum the tree."""

    def probabilities(self) -> Float[Tensor, "P n"]:
        """p(i) of every live slot. Reads the size on the host."""
        size = int(self.size)
        masses = self.tree.masses[:, :size]
        return (1 - self.floor) * masses / self.tree.totals + self.floor / size

    def check_room(self, count: int) -> None:
        """Raise unless `count` distinct slots can be overwritten at once."""
        most = max(1, self.stamps.shape[1] - 1)
        if count > most:
            raise ValueError(
                f"{count} transitions at once do not fit a capacity of {self.stamps.shape[1]}; place at most {most}"
            )
