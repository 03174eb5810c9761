"""Feedback age of a slot: number of updates since the learner last reported on it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.backends import fused
from aes_rl.backends.distribution import AbstractDistribution
from aes_rl.types import AnyArray, Counter, Draw


class FeedbackAges:
    """The update that last reported on each slot since the slot was written."""

    def __init__(self, members: int, capacity: int, device: torch.device):
        self.last_report = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        """The last update that reported on each slot, counted from 1; 0 if none did."""

    def note(self, draw: Draw, distribution: AbstractDistribution[AnyArray], update: Counter) -> None:
        """Record that update `update` reported on a draw; slots that were overwritten since keep their age."""
        if isinstance(draw.clock, int) and draw.clock == distribution.clock:
            values = torch.as_tensor(update).to(self.last_report).expand(draw.slots.shape)
        else:
            values = _noted(self.last_report, distribution.stamps, draw.slots, draw.clock, update)
        self.last_report.scatter_(1, draw.slots, values)

    def forget(self, slots: Int[Tensor, "P K"]) -> None:
        """Reset slots that have just been written."""
        self.last_report.scatter_(1, slots.long(), 0)

    def ages(self, slots: Int[Tensor, "m"], update: Counter) -> Float[Tensor, "P m"]:
        """Updates since the last report on these slots, for every member; infinite if there was none."""
        last = self.last_report[:, slots]
        return torch.where(last == 0, torch.inf, (torch.as_tensor(update).to(last) - last).float())


@fused
def _noted(
    last_report: Int[Tensor, "P N"],
    stamps: Int[Tensor, "P N"],
    slots: Int[Tensor, "P B"],
    clock: Counter,
    update: Counter,
) -> Int[Tensor, "P B"]:
    is_current = stamps.gather(1, slots) <= clock
    return torch.where(is_current, update, last_report.gather(1, slots)).int()
