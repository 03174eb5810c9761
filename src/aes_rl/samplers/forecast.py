"""What is known of the slots' gradient norms, and what it says about the next one.

Per slot: the logarithm of the last norm seen, and when that was. Per member: mean and variance of the logarithms, and
for every age, in powers of two, the slope by which an old one predicts a new one. A member's numbers are
importance-weighted, so that they describe the slots and not the draws, and fade slowly. The equations are on the page
docs/samplers/predictive.md.
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
    """The expected squared norm of every slot of a slice of members."""

    def __init__(self, setting: Setting, memory: int, horizon: int):
        """Means and slopes fade over `memory` updates; a slot just seen is forecast for `horizon` updates later."""
        members, capacity, backend = setting.members, setting.capacity, setting.backend
        self.logs = backend.zeros((members, capacity), torch.float32)
        """Logarithm of the squared norm last seen."""
        self.seen = backend.zeros((members, capacity), torch.int32)
        """The update that last saw each slot, from 1; 0 for never."""
        self.moments = torch.zeros(members, 3, dtype=torch.float64, device=backend.device)
        """Weighted sums of 1, log d and (log d)²."""
        self.pairs = torch.zeros(members, AGES, 2, dtype=torch.float64, device=backend.device)
        """Weighted sums of old · new and old · old by age, both less the mean."""
        self.updates = torch.zeros(1, dtype=torch.int64, device=backend.device)
        self._keep, self._horizon = 1 - 1 / memory, horizon
        parts = (self.logs, self.seen, self.moments, self.pairs, self.updates)
        self._views = tuple(backend.view(part) for part in parts)
        self._observe, self._forget, self._forecast = map(backend.form, (_OBSERVE, _FORGET, _FORECAST))

    def observe(self, report: Report, squared_norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """Learn from one update's norms; the masses √E[d] of the drawn slots. A norm of zero says nothing."""
        draw = report.draw
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._observe(*self._views, *drawn, squared_norms, report.is_current_view, self._keep, self._horizon)

    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """Nothing is known of slots just written; their masses."""
        _, seen, moments, _, _ = self._views
        return self._forget(seen, moments, slots)

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots, by their ages now."""
        return self._forecast(*self._views)
