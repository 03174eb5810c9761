"""How old the sampler's knowledge of a slot is: updates since the slot was last drawn and reported on."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.types import Counter


class FeedbackAges:
    """The update that last reported on each slot; a slot just written has not been reported on."""

    def __init__(self, members: int, capacity: int, device: torch.device):
        self.heard = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        """Updates count from 1; 0 for never."""

    def note(self, slots: Int[Tensor, "P B"], update: Counter) -> None:
        """Update `update` reported on these slots."""
        self.heard.scatter_(1, slots.long(), torch.as_tensor(update).to(self.heard).expand(slots.shape))

    def forget(self, slots: Int[Tensor, "P K"]) -> None:
        """These slots have just been written."""
        self.heard.scatter_(1, slots.long(), 0)

    def ages(self, slots: Int[Tensor, "m"], update: Counter) -> Float[Tensor, "P m"]:
        """Updates since the last report on these slots of every member; infinite for never."""
        heard = self.heard[:, slots]
        return torch.where(heard == 0, torch.inf, (torch.as_tensor(update).to(heard) - heard).float())
