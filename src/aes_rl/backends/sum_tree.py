"""What a tree of masses can do, whichever backend runs it."""

from abc import ABC, abstractmethod
from typing import Generic

from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.types import AnyArray, Counter


class AbstractSumTree(ABC, Generic[AnyArray]):
    """The masses m(i) of P members over N slots, float64, with sums that make a draw cheap.

    Parents are always summed anew from their children, never adjusted by differences: sums cannot drift, and a tree
    rebuilt from its leaves equals the tree that was saved. Empty slots hold mass zero and lie behind the live ones; the
    distribution lets no mass of a live slot in that is not finite and positive.
    """

    masses: Float[Tensor, "P N"]
    """The leaves, a view. Change them through `write` and `refill` only."""

    @property
    @abstractmethod
    def totals(self) -> Float[Tensor, "P 1"]:
        """Sum of each member's masses."""

    @abstractmethod
    def write(
        self, members: slice, slots: AnyArray, masses: Float[Tensor, "p B"], kept: Bool[Tensor, "p B"] | None = None
    ) -> None:
        """Set the masses of some slots of some members, where `kept`. Of a slot named twice the last mass stays."""

    @abstractmethod
    def refill(self, members: slice, masses: Float[Tensor, "p n"]) -> None:
        """Set the masses of the first n slots of some members and resum all their parents."""

    @abstractmethod
    def draw(self, uniforms: AnyArray, floor: AnyArray, size: Counter) -> tuple[AnyArray, AnyArray]:
        """Slots drawn from (1−κ)·m(i)/Σm + κ/n, and those probabilities.

        One uniform u serves both parts: below κ it names one of the n live slots, above it descends the tree.
        """


def is_sound(masses: Float[Tensor, "p B"]) -> Bool[Tensor, "p B"]:
    """Whether masses may be those of live slots: finite and positive."""
    return (masses > 0) & masses.isfinite()


def unsound_mass(masses: Float[Tensor, "p B"], first_member: int) -> str:
    """What to say of masses of which one is not sound."""
    member, position = (~is_sound(masses)).nonzero()[0].tolist()
    return (
        f"a rule gave member {first_member + member} the mass {masses[member, position].item()} (position {position}); "
        "masses must be finite and above 0. Nothing was written"
    )
