"""Predictive selection: draw in proportion to the gradient norm that each slot is expected to have now.

The forecasts are in `forecasts.py`, their equations in docs/samplers/predictive.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.forecasts import AbstractForecast, DeviationForecast, ValueForecast
from aes_rl.samplers.network_norms import NetworkNorms, check_networks
from aes_rl.samplers.rule import AbstractRule, Networks, Setting
from aes_rl.types import Array, Report, Signal


@dataclass(frozen=True)
class Predictive:
    """Predictive selection (docs/samplers/predictive.md)."""

    floor: float = 0.1
    """κ: probability reserved for uniform draws after the warm-up; no weight exceeds 1/κ. In update t, while little is
    known, it is at least 1/(1 + t/refresh_every)."""
    memory: int = 10_000
    """Time constant, in updates, of the statistics per member."""
    refresh_every: int = 1000
    """Recompute the forecasts of all slots every so many updates; those of drawn slots are updated immediately."""
    networks: Networks = None
    """Which networks' gradients form the signal: None is all, ("actor",) the actor's alone, "balanced" all with equal
    influence; "separate" makes one draw for the critics and another for the actor, each from its own gradients."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""
    forecast: Literal["value", "deviation", "mean-and-last"] = "value"
    """What is remembered of a slot: its last squared norm ("value"), a running mean of how far its norms were from the
    mean of all norms at the time ("deviation"), which follows norms that all change together, or this mean and the last
    of these deviations."""
    mean_memory: int = 200
    """Time constant, in updates, of the mean that deviations are measured from; not for forecast="value"."""

    def __post_init__(self) -> None:
        checks.floor(self.floor)
        checks.choice("forecast", self.forecast, ("value", "deviation", "mean-and-last"))
        checks.count("memory", self.memory)
        checks.count("mean_memory", self.mean_memory)
        checks.count("refresh_every", self.refresh_every)
        checks.choice("overwrite", self.overwrite, OVERWRITES)
        check_networks(self.networks, self.overwrite)


class PredictiveRule(AbstractRule):
    """m(i) = √E[d(i) | what was observed of slot i, its age]. No parameter depends on the scale of d."""

    config_type: ClassVar = Predictive
    needs = Signal.GRADIENT_NORM
    is_unbiased = True
    networks_option = "networks"
    is_sequential = False
    updates_options = ("memory", "mean_memory", "refresh_every")

    def __init__(self, config: Predictive, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = self._floor_after(0)
        self.overwrite = config.overwrite
        self.norms = NetworkNorms(config.networks, setting)
        # A mass is used at the latest until the next forecast of all slots: on average for half of that period.
        horizon = max(1, config.refresh_every // 2)
        self.forecast: AbstractForecast = (
            ValueForecast(setting, config.memory, horizon)
            if config.forecast == "value"
            else DeviationForecast(
                setting, config.memory, config.mean_memory, horizon, uses_last=config.forecast == "mean-and-last"
            )
        )

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self.forecast.forget(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.forecast.observe(report, self.norms.of(report))

    @override
    def advance(self, update_step: int) -> Float[Array, "p N"] | None:
        """Forecast all slots every `refresh_every` updates and, before the first of these, after updates 1, 2, 4, …."""
        self.floor = self._floor_after(update_step)
        is_early = update_step < self.config.refresh_every and update_step.bit_count() == 1
        if is_early or update_step % self.config.refresh_every == 0:
            return self.forecast.masses()
        return None

    def _floor_after(self, update_step: int) -> float:
        """κ falls to its final value, because large weights while norms change fast make large steps overshoot."""
        return max(self.config.floor, 1 / (1 + update_step / self.config.refresh_every))

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return self.forecast.slot_state()

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return self.forecast.state_dict() | self.norms.state_dict()
