"""What is known of the slots' gradient norms, and what it says about the next one (S15).

Of a slot: the logarithm of the last norm seen, and when that was. Of a member: mean and variance of the logarithms,
and for every age, in powers of two, the slope by which an old one predicts a new one. A member's numbers are
importance-weighted, so that they describe the slots and not the draws, and fade slowly.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.engines.forecasts import AGES, Knowledge
from aes_rl.samplers.rule import Setting
from aes_rl.types import Draw


class Forecast:
    """The expected squared norm of every slot of a slice of members."""

    def __init__(self, setting: Setting, memory: int, horizon: int):
        """Means and slopes fade over `memory` updates; a slot just seen is forecast for `horizon` updates later."""
        members, capacity, engine = setting.members, setting.capacity, setting.engine
        self.logs = engine.zeros((members, capacity), torch.float32)
        self.seen = engine.zeros((members, capacity), torch.int32)
        """The update that last saw each slot, from 1; 0 for never."""
        self.moments = torch.zeros(members, 3, dtype=torch.float64, device=engine.device)
        self.pairs = torch.zeros(members, AGES, 2, dtype=torch.float64, device=engine.device)
        self.updates = torch.zeros(1, dtype=torch.int64, device=engine.device)
        self._keep, self._horizon = 1 - 1 / memory, horizon
        self._engine = engine
        parts = (self.logs, self.seen, self.moments, self.pairs, self.updates)
        self._views = Knowledge(*(engine.view(part) for part in parts))

    def observe(self, draw: Draw, squared_norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """Learn from one update's norms; the masses √E[d] of the drawn slots. A norm of zero says nothing."""
        drawn = (draw.slots_view, draw.probabilities_view, draw.size)
        return self._engine.observe(self._views, *drawn, squared_norms, self._keep, self._horizon)

    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """Nothing is known of slots just written; their masses."""
        return self._engine.forget(self._views, self._engine.view(slots))

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots, by their ages now."""
        return self._engine.forecast(self._views)
