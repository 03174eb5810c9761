"""Feedback age of a slot: number of updates since the learner last reported on it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.types import Counter


class FeedbackAges:
    """The update that last reported on each slot since the slot was written."""

    def __init__(self, members: int, capacity: int, device: torch.device):
        self.last_report = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        """The last update that reported on each slot, counted from 1; 0 if none did."""

    def note(self, slots: Int[Tensor, "P B"], update: Counter) -> None:
        """Record that update `update` reported on these slots."""
        self.last_report.scatter_(1, slots.long(), torch.as_tensor(update).to(self.last_report).expand(slots.shape))

    def forget(self, slots: Int[Tensor, "P K"]) -> None:
        """Reset slots that have just been written."""
        self.last_report.scatter_(1, slots.long(), 0)

    def ages(self, slots: Int[Tensor, "m"], update: Counter) -> Float[Tensor, "P m"]:
        """Updates since the last report on these slots, for every member; infinite if there was none."""
        last = self.last_report[:, slots]
        return torch.where(last == 0, torch.inf, (torch.as_tensor(update).to(last) - last).float())
