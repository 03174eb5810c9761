"""Recency-based selection: the probability of a slot decays geometrically with its age in insertions."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends import Forms
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Array, Report, Signal

LARGEST_LOG = 300.0
"""Largest absolute logarithm of a mass: e^300 and the sum of a billion of them are finite."""


@dataclass(frozen=True)
class Geometric:
    """Geometric selection by age, truncated at the size of the buffer."""

    mean_age: int = 100_000
    """Mean age of a drawn slot in insertions, if the buffer is much larger than that."""
    unbiased: bool = False
    """Whether importance weights correct for the selection. By default all weights are 1, so that recent transitions
    count more in the objective."""
    floor: float = 0.0
    """κ: probability reserved for uniform draws; unbiased weights do not exceed 1/κ."""
    refresh_every: int = 1000
    """Recompute all masses every so many updates. In between, new slots get larger masses instead of old ones getting
    smaller ones, which gives the same probabilities."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.count("mean_age", self.mean_age)
        checks.fraction("floor", self.floor)
        checks.count("refresh_every", self.refresh_every)
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class GeometricRule(AbstractRule):
    """m(i) ∝ exp(−age(i)/mean_age). Needs no feedback."""

    config_type: ClassVar = Geometric
    needs = Signal.NONE
    updates_options = ("refresh_every",)
    insertions_options = ("mean_age",)

    def __init__(self, config: Geometric, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = config.floor
        self.overwrite = config.overwrite
        self.is_unbiased = config.unbiased
        self.rate = -math.log1p(-1 / config.mean_age) if config.mean_age > 1 else LARGEST_LOG
        self.written = setting.backend.zeros((setting.members, setting.capacity), torch.int32)
        """The insertion that wrote each slot, counted from 1."""
        self.clocks = torch.zeros(2, dtype=torch.int64, device=setting.backend.device)
        """Insertions so far, and insertions when all masses were last computed."""
        self._views = setting.backend.view(self.written), setting.backend.view(self.clocks)
        self._fresh = setting.backend.form(_FRESH)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self._fresh(*self._views, slots, self.rate)

    @override
    def feedback(self, report: Report) -> None:
        del report

    @override
    def advance(self, update_step: int) -> Float[Tensor, "p N"] | None:
        if update_step % self.config.refresh_every:
            return None
        self.clocks[1] = self.clocks[0]
        return _masses(self.written, self.clocks[1], self.rate)

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"written": self.written}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"clocks": self.clocks}


def _written(
    written: Int[Tensor, "p N"], clocks: Int[Tensor, "2"], slots: Int[Tensor, "p K"], rate: float
) -> Float[Tensor, "p K"]:
    """Record which insertions wrote the slots; return their masses."""
    arrivals = clocks[0] + torch.arange(1, slots.shape[1] + 1, device=slots.device)
    clocks[0] += slots.shape[1]
    written.scatter_(1, slots, arrivals.int().expand(slots.shape))
    return _masses(arrivals.expand(slots.shape), clocks[1], rate)


def _masses(written: Int[Tensor, "p K"], base: Int[Tensor, ""], rate: float) -> Float[Tensor, "p K"]:
    """exp(rate · (insertion − base)): the ratio of two masses depends only on the difference of their ages."""
    return (rate * (written - base).double()).clamp(-LARGEST_LOG, LARGEST_LOG).exp()


_FRESH = Forms(_written, loops="aes_rl.samplers.geometric_loops:write")
