"""Predictive selection: draw in proportion to the gradient norm that each slot is expected to have now."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.forecast import Forecast
from aes_rl.samplers.reports import Networks, check_networks, squared_norm
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Draw, Report, Signal


@dataclass(frozen=True)
class Predictive:
    """Predictive selection (docs/samplers/predictive.md)."""

    floor: float = 0.1
    """κ: probability reserved for uniform draws; no weight exceeds 1/κ."""
    memory: int = 10_000
    """Time constant, in updates, of the statistics per member."""
    refresh_every: int = 1000
    """Recompute the forecasts of all slots every so many updates; those of drawn slots are updated immediately."""
    networks: Networks = None
    """Networks whose gradients form the signal, such as ("actor",); None means all of them."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.floor(self.floor)
        checks.count("memory", self.memory)
        checks.count("refresh_every", self.refresh_every)
        checks.choice("overwrite", self.overwrite, OVERWRITES)
        check_networks(self.networks)


class PredictiveRule(AbstractRule):
    """m(i) = √E[d(i) | last observed d(i), its age]. No parameter depends on the scale of d."""

    config_type: ClassVar = Predictive
    needs = Signal.GRADIENT_NORM
    is_unbiased = True
    is_sequential = False
    updates_options = ("memory", "refresh_every")

    def __init__(self, config: Predictive, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = config.floor
        self.overwrite = config.overwrite
        # The mass of a drawn slot is used until the next forecast of all slots, so its mean age is half that period.
        self.forecast = Forecast(setting, config.memory, horizon=max(1, config.refresh_every // 2))

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self.forecast.forget(slots)

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        return self.forecast.observe(report, squared_norm(report.signals, self.config.networks))

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        return weighting.unbiased(draw, self.setting.backend, self.setting.dtype)

    @override
    def advance(self, update_step: int) -> Float[Tensor, "p N"] | None:
        """Forecast all slots every `refresh_every` updates and, before the first of these, after updates 1, 2, 4, …."""
        is_early = update_step < self.config.refresh_every and update_step.bit_count() == 1
        if is_early or update_step % self.config.refresh_every == 0:
            return self.forecast.masses()
        return None

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"logs": self.forecast.logs, "seen": self.forecast.seen}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        known = self.forecast
        return {"moments": known.moments, "pairs": known.pairs, "updates": known.updates}
