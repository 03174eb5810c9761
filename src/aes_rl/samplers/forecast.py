"""What is known of the slots' gradient norms, and what it says about the next one (S15).

Of a slot: the logarithm of the last norm seen, and when that was. Of a member: mean and variance of the logarithms,
and for every age, in powers of two, the slope by which an old one predicts a new one. A member's numbers are
importance-weighted, so that they describe the slots and not the draws, and fade slowly.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.engines.forecasts import AGES, Knowledge, bucket_of, expected_log, statistics_of
from aes_rl.samplers.rule import Setting
from aes_rl.types import Draw


class Forecast:
    """The expected squared norm of every slot of a slice of members."""

    def __init__(self, setting: Setting, memory: int):
        """`memory` is the number of updates over which means and slopes fade."""
        members, capacity, engine = setting.members, setting.capacity, setting.engine
        self.logs = engine.zeros((members, capacity), torch.float32)
        self.seen = engine.zeros((members, capacity), torch.int32)
        """The update that last saw each slot, from 1; 0 for never."""
        self.moments = torch.zeros(members, 3, dtype=torch.float64, device=engine.device)
        self.pairs = torch.zeros(members, AGES, 2, dtype=torch.float64, device=engine.device)
        self.updates = torch.zeros(1, dtype=torch.int64, device=engine.device)
        self._keep = 1 - 1 / memory
        self._engine = engine
        parts = (self.logs, self.seen, self.moments, self.pairs, self.updates)
        self._views = Knowledge(*(engine.view(part) for part in parts))

    def observe(self, draw: Draw, squared_norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """Learn from one update's norms; the masses √E[d] of the drawn slots. A norm of zero says nothing."""
        return self._engine.observe(
            self._views, draw.slots_view, draw.probabilities_view, draw.size, squared_norms, self._keep
        )

    def forget(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """Nothing is known of slots just written; their masses."""
        self.seen.scatter_(1, slots, 0)
        return self._prior().exp().expand(slots.shape).contiguous()

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots, by their ages now."""
        mean, variance, slopes = statistics_of(self.moments, self.pairs)
        buckets = bucket_of(self.updates - self.seen)
        # The logarithm of a mass is linear in the last one seen, with two numbers for every age.
        start, rise = 0.5 * expected_log(0, slopes, mean, variance), 0.5 * slopes
        logs = start.gather(1, buckets) + rise.gather(1, buckets) * self.logs
        return torch.where(self.seen > 0, logs, self._prior()).exp_()

    def state_dict(self) -> dict[str, Tensor]:
        """All of it."""
        return {
            "logs": self.logs,
            "seen": self.seen,
            "moments": self.moments,
            "pairs": self.pairs,
            "updates": self.updates,
        }

    def _prior(self) -> Float[Tensor, "p 1"]:
        """Log mass of a slot never seen."""
        mean, variance, _ = statistics_of(self.moments, self.pairs)
        return 0.5 * expected_log(0, torch.zeros_like(mean), mean, variance)
