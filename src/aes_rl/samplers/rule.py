"""What a selection rule must say. A new sampler is one such class and one line in `registry.py`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.backends import AbstractBackend
from aes_rl.backends.distribution import Overwrite
from aes_rl.errors import UserError
from aes_rl.types import Array, Draw, Report, Signal


@dataclass(frozen=True)
class Setting:
    """Where a rule works: the slice of the population it serves and the run around it."""

    members: int
    capacity: int
    total_updates: int | None
    """Updates of the whole run, for schedules; None where the caller does not know."""
    backend: AbstractBackend[Array]
    dtype: torch.dtype
    """That of the weights, the learner's."""


class AbstractRule(ABC):
    """Says what the masses of a slice of members are; the Distribution does the rest.

    `fresh`, `feedback` and `weights` may be captured in a CUDA graph: they change preallocated tensors in place and
    read no tensor on the host. `advance` and `observe_all` run on the host.
    """

    config_type: ClassVar[type[Any]]
    """The frozen dataclass that `__init__` takes."""
    needs: ClassVar[Signal]
    is_unbiased: bool
    """Whether the weights make the weighted mean over draws unbiased for the uniform mean."""
    is_sequential: ClassVar[bool] = True
    """Whether the reports on a batch count as if they came one after the other; if not, a batch counts as one."""
    updates_options: ClassVar[tuple[str, ...]] = ()
    """Options that count updates; a simulation whose steps stand for several updates divides them."""
    floor: float
    """κ: the probability reserved for the uniform part."""
    overwrite: Overwrite

    @abstractmethod
    def __init__(self, config: Any, setting: Setting): ...

    @abstractmethod
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """Masses of slots just written, positive; forgets what was known of the old content."""

    @abstractmethod
    def feedback(self, report: Report) -> Float[Tensor, "p B"] | None:
        """Masses of the drawn slots after the learner's report, positive; None where they stay as they are.

        A slot drawn twice is reported twice: accumulate with `scatter_add_`, or write what `report.last_of_slot` gives;
        never write different values by index. Learn only where `report.is_current`: elsewhere the slot was overwritten
        since the draw, and its mass stays whatever is returned.
        """

    @abstractmethod
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        """Importance weights of the draw, by one of the functions of `aes_rl.weighting`."""

    @abstractmethod
    def advance(self, update_step: int) -> Float[Tensor, "p N"] | None:
        """Move schedules to the end of update `update_step` (from 1); all masses anew, or None where none changed.

        Masses are those of all N slots. Live slots are the first n; what is returned for empty ones is ignored.
        """

    def slot_state(self) -> dict[str, Tensor]:
        """The tensors [p, N, …] that hold something of every slot; a saved state is copied back into them in place.

        A checkpoint holds the entries of live slots. Those of empty ones may not matter: `fresh` sets them.
        """
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """All other tensors that change over time; a saved state is copied back into them in place."""

    def observe_all(self, squared_norms: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        """Masses of all live slots from a signal over all of them."""
        raise TypeError(f"{type(self).__name__} takes no signal over all of {tuple(squared_norms.shape)} slots")


def schedule(first: float, last: float | None, update_step: int, setting: Setting) -> float:
    """Linear from `first` to `last` over the run's updates, constant where `last` is None."""
    if last is None or setting.total_updates is None:
        return first
    progress = min(1.0, update_step / setting.total_updates)
    return first + (last - first) * progress


def require_total_updates(what: str, setting: Setting) -> None:
    """Raise where a schedule has no end to run to."""
    if setting.total_updates is None:
        raise UserError(f"{what} is annealed over the run, whose length is unknown; give total_updates")
