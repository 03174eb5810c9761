"""Predictive selection: draw in proportion to the gradient norm that each slot is expected to have now.

Per slot: the logarithm of the last observed squared norm, and the update that observed it. Per member: mean and
variance of the logarithms and, for each age bucket (powers of two), the regression slope of a new logarithm on an old
one. The statistics per member are importance-weighted, so that they describe the slots rather than the draws, and
decay exponentially. The equations are in docs/samplers/predictive.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends import Forms
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers import forecast_equations
from aes_rl.samplers.forecast_equations import AGES
from aes_rl.samplers.reports import Networks, check_networks, squared_norm
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Array, Draw, Report, Signal

_LOOPS = "aes_rl.samplers.forecast_loops"
_OBSERVE = Forms(forecast_equations.observe, loops=f"{_LOOPS}:observe")
_FORGET = Forms(forecast_equations.forget, loops=f"{_LOOPS}:forget")
_FORECAST = Forms(forecast_equations.forecast, loops=f"{_LOOPS}:forecast")


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
        self.floor = self._floor_after(0)
        self.overwrite = config.overwrite
        # The mass of a drawn slot is used until the next forecast of all slots, so its mean age is half that period.
        self.forecast = Forecast(setting, config.memory, horizon=max(1, config.refresh_every // 2))

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self.forecast.forget(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.forecast.observe(report, squared_norm(report, self.config.networks, self.setting.backend))

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        return weighting.unbiased(draw, self.setting.backend, self.setting.dtype)

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
        return {"logs": self.forecast.logs, "seen": self.forecast.seen}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        known = self.forecast
        return {"moments": known.moments, "pairs": known.pairs, "updates": known.updates}


class Forecast:
    """The expected squared gradient norm of every slot, for a slice of members."""

    def __init__(self, setting: Setting, memory: int, horizon: int):
        """Statistics decay over `memory` updates; a slot just drawn is forecast for `horizon` updates later."""
        members, capacity, backend = setting.members, setting.capacity, setting.backend
        self.logs = backend.zeros((members, capacity), torch.float32)
        """Logarithm of the last observed squared norm."""
        self.seen = backend.zeros((members, capacity), torch.int32)
        """The update that last observed each slot, counted from 1; 0 if none did."""
        self.moments = torch.zeros(members, 3, dtype=torch.float64, device=backend.device)
        """Weighted sums of 1, log d and (log d)²."""
        self.pairs = torch.zeros(members, AGES, 2, dtype=torch.float64, device=backend.device)
        """Weighted sums of old · new and old · old per age bucket, where the mean is subtracted from both."""
        self.updates = torch.zeros(1, dtype=torch.int64, device=backend.device)
        self._keep, self._horizon = 1 - 1 / memory, horizon
        parts = (self.logs, self.seen, self.moments, self.pairs, self.updates)
        self._views = tuple(backend.view(part) for part in parts)
        self._observe, self._forget, self._forecast = map(backend.form, (_OBSERVE, _FORGET, _FORECAST))

    def observe(self, report: Report, squared_norms: Float[Array, "p B"]) -> Float[Array, "p B"]:
        """Learn from one update's norms; return the masses √E[d] of the drawn slots. Norms of zero are ignored."""
        draw = report.draw
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._observe(*self._views, *drawn, squared_norms, report.is_current_view, self._keep, self._horizon)

    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        """Mark slots that were just written as unobserved; return their masses."""
        _, seen, moments, _, _ = self._views
        return self._forget(seen, moments, slots)

    def masses(self) -> Float[Array, "p N"]:
        """The masses of all slots at their current ages."""
        return self._forecast(*self._views)
