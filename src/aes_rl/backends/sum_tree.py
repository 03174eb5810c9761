"""The interface of a sum tree of masses."""

from abc import ABC, abstractmethod
from typing import Generic

from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.types import AnyArray, Counter


class AbstractSumTree(ABC, Generic[AnyArray]):
    """The masses m(i) of P members and N slots in float64, with partial sums that make draws cheap.

    Parents are always recomputed from their children, never adjusted by differences: sums do not drift, and a tree
    rebuilt from its leaves equals the tree that was saved. Empty slots come after the live ones and have mass zero; the
    distribution ensures that the masses of live slots are finite and positive.
    """

    masses: Float[Tensor, "P N"]
    """A view of the leaves. Change them only with `write` and `refill`."""

    @property
    @abstractmethod
    def totals(self) -> Float[Tensor, "P 1"]:
        """Sum of each member's masses."""

    @abstractmethod
    def write(self, members: slice, slots: AnyArray, masses: AnyArray | Tensor, kept: AnyArray | None = None) -> None:
        """Set the masses of slots where `kept` is true. The last mass of a repeated slot is used."""

    @abstractmethod
    def refill(self, members: slice, masses: AnyArray | Tensor) -> None:
        """Set the masses of the first n slots of a slice of members and recompute all their parents."""

    @abstractmethod
    def draw(self, uniforms: AnyArray, floor: AnyArray, size: Counter) -> tuple[AnyArray, AnyArray]:
        """Slots drawn from (1−κ)·m(i)/Σm + κ/n, and their probabilities.

        One uniform u is used for both parts: below κ it selects one of the n live slots, above it descends the tree.
        """


def is_sound(masses: Float[Tensor, "p B"]) -> Bool[Tensor, "p B"]:
    """Whether masses are valid for live slots: finite and positive."""
    return (masses > 0) & masses.isfinite()


def unsound_mass(masses: Float[Tensor, "p B"], first_member: int) -> str:
    """An error message that names the first invalid mass."""
    member, position = (~is_sound(masses)).nonzero()[0].tolist()
    return (
        f"a rule gave member {first_member + member} the mass {masses[member, position].item()} (position {position}); "
        "masses must be finite and above 0. No mass was written"
    )
