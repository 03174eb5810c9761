"""Forecasts of every slot's squared gradient norm, for a slice of members.

The statistics per member are importance-weighted, so that they describe the slots rather than the draws, and decay
exponentially.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends import Forms
from aes_rl.samplers import deviation_equations, forecast_equations
from aes_rl.samplers.rule import Setting
from aes_rl.types import Array, Report

_VALUE_LOOPS, _DEVIATION_LOOPS = "aes_rl.samplers.forecast_loops", "aes_rl.samplers.deviation_loops"
_OBSERVE_VALUE = Forms(forecast_equations.observe, loops=f"{_VALUE_LOOPS}:observe")
_FORGET_VALUE = Forms(forecast_equations.forget, loops=f"{_VALUE_LOOPS}:forget")
_FORECAST_VALUE = Forms(forecast_equations.forecast, loops=f"{_VALUE_LOOPS}:forecast")
_OBSERVE_DEVIATION = Forms(deviation_equations.observe, loops=f"{_DEVIATION_LOOPS}:observe")
_FORGET_DEVIATION = Forms(deviation_equations.forget, loops=f"{_DEVIATION_LOOPS}:forget")
_FORECAST_DEVIATION = Forms(deviation_equations.forecast, loops=f"{_DEVIATION_LOOPS}:forecast")


class AbstractForecast(ABC):
    """The expected squared gradient norm of every slot. Masses are its roots."""

    @abstractmethod
    def observe(self, report: Report, squared_norms: Float[Array, "p B"]) -> Float[Array, "p B"]:
        """Learn from one update's norms; return the masses √E[d] of the drawn slots. Norms of zero are ignored."""

    @abstractmethod
    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        """Mark slots that were just written as unobserved; return their masses."""

    @abstractmethod
    def masses(self) -> Float[Array, "p N"]:
        """The masses of all slots at their current ages."""

    @abstractmethod
    def slot_state(self) -> dict[str, Tensor]:
        """The tensors with an entry per slot."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """All other tensors that change over time."""


class ValueForecast(AbstractForecast):
    """From the last observed norm: its logarithm regresses to the mean, with a slope for each age (powers of two)."""

    def __init__(self, setting: Setting, memory: int, horizon: int):
        """Statistics decay over `memory` updates; a slot just drawn is forecast for `horizon` updates later."""
        members, capacity, backend = setting.members, setting.capacity, setting.backend
        self.logs = backend.zeros((members, capacity), torch.float32)
        """Logarithm of the last observed squared norm."""
        self.seen = backend.zeros((members, capacity), torch.int32)
        """The update that last observed each slot, counted from 1; 0 if none did."""
        self.moments = torch.zeros(members, 3, dtype=torch.float64, device=backend.device)
        """Weighted sums of 1, log d and (log d)²."""
        self.pairs = torch.zeros(members, forecast_equations.AGES, 2, dtype=torch.float64, device=backend.device)
        """Weighted sums of old · new and old · old per age bucket, where the mean is subtracted from both."""
        self.updates = torch.zeros(1, dtype=torch.int64, device=backend.device)
        self._keep, self._horizon = 1 - 1 / memory, horizon
        parts = (self.logs, self.seen, self.moments, self.pairs, self.updates)
        self._views = tuple(backend.view(part) for part in parts)
        forms = (_OBSERVE_VALUE, _FORGET_VALUE, _FORECAST_VALUE)
        self._observe, self._forget, self._forecast = map(backend.form, forms)

    @override
    def observe(self, report: Report, squared_norms: Float[Array, "p B"]) -> Float[Array, "p B"]:
        draw = report.draw
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._observe(*self._views, *drawn, squared_norms, report.is_current_view, self._keep, self._horizon)

    @override
    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        _, seen, moments, _, _ = self._views
        return self._forget(seen, moments, slots)

    @override
    def masses(self) -> Float[Array, "p N"]:
        return self._forecast(*self._views)

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"logs": self.logs, "seen": self.seen}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"moments": self.moments, "pairs": self.pairs, "updates": self.updates}


class DeviationForecast(AbstractForecast):
    """From a running mean of deviations: log d minus the mean of log d over the slots at the same moment."""

    def __init__(self, setting: Setting, memory: int, mean_memory: int, horizon: int, uses_last: bool):
        """The mean decays over `mean_memory` updates, the regressions over `memory`.

        The regressions use the running mean and, with `uses_last`, the last deviation.
        """
        members, capacity, backend = setting.members, setting.capacity, setting.backend
        count = deviation_equations.SUMS_WITH_LAST if uses_last else deviation_equations.SUMS
        state = deviation_equations.State(
            backend.zeros((members, capacity), torch.float32),
            backend.zeros((members, capacity if uses_last else 0), torch.float32),
            backend.zeros((members, capacity), torch.int32),
            backend.zeros((members, capacity), torch.uint8),
            torch.zeros(members, deviation_equations.MOMENTS, dtype=torch.float64, device=backend.device),
            torch.zeros(members, deviation_equations.BUCKETS, count, dtype=torch.float64, device=backend.device),
            torch.zeros(1, dtype=torch.int64, device=backend.device),
        )
        self._state = state
        self._keeps, self._horizon = (1 - 1 / mean_memory, 1 - 1 / memory), horizon
        self._views = tuple(map(backend.view, state))
        forms = (_OBSERVE_DEVIATION, _FORGET_DEVIATION, _FORECAST_DEVIATION)
        self._observe, self._forget, self._forecast = map(backend.form, forms)

    @override
    def observe(self, report: Report, squared_norms: Float[Array, "p B"]) -> Float[Array, "p B"]:
        draw = report.draw
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._observe(*self._views, *drawn, squared_norms, report.is_current_view, *self._keeps, self._horizon)

    @override
    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self._forget(*self._views, slots, self._horizon)

    @override
    def masses(self) -> Float[Array, "p N"]:
        return self._forecast(*self._views)

    @override
    def slot_state(self) -> dict[str, Tensor]:
        state = self._state
        last = {"last": state.last} if state.last.shape[1] else {}
        return {"deviations": state.deviations, **last, "since": state.since, "reports": state.reports}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"moments": self._state.moments, "sums": self._state.sums, "updates": self._state.updates}
