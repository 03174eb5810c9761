"""Forecasts of the slots' gradient norms from the norms observed so far.

Per slot: the logarithm of the last observed squared norm, and the update that observed it. Per member: mean and
variance of the logarithms and, for each age bucket (powers of two), the regression slope of a new logarithm on an old
one. The statistics per member are importance-weighted, so that they describe the slots rather than the draws, and
decay exponentially. The equations are in docs/samplers/predictive.md.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.backends import Forms
from aes_rl.samplers import forecast_equations
from aes_rl.samplers.forecast_equations import AGES
from aes_rl.samplers.rule import Setting
from aes_rl.types import Report

_LOOPS = "aes_rl.samplers.forecast_loops"
_OBSERVE = Forms(forecast_equations.observe, loops=f"{_LOOPS}:observe")
_FORGET = Forms(forecast_equations.forget, loops=f"{_LOOPS}:forget")
_FORECAST = Forms(forecast_equations.forecast, loops=f"{_LOOPS}:forecast")


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

    def observe(self, report: Report, squared_norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """Learn from one update's norms; return the masses √E[d] of the drawn slots. Norms of zero are ignored."""
        draw = report.draw
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._observe(*self._views, *drawn, squared_norms, report.is_current_view, self._keep, self._horizon)

    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """Reset slots just written to unobserved; return their masses."""
        _, seen, moments, _, _ = self._views
        return self._forget(seen, moments, slots)

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots at their current ages."""
        return self._forecast(*self._views)
