"""Priorities from TD errors, and the largest of them so far: what the variants of prioritized replay share."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends import Forms, fused
from aes_rl.samplers.rule import Setting
from aes_rl.types import Array, Report

LARGEST_ERROR = 1e298
"""Absolute errors above it count as it: the sum of a billion priorities is finite."""


class Priorities:
    """(max(|δ|, smallest) + added)^exponent for a slice of members; new slots get the member's largest so far."""

    def __init__(self, setting: Setting, exponent: float, smallest: float = 0.0, added: float = 0.0):
        self.largest = torch.ones(setting.members, 1, dtype=torch.float64, device=setting.backend.device)
        """The largest priority of each member so far."""
        self._options = smallest, added, exponent
        self._largest_view = setting.backend.view(self.largest)
        self._reported = setting.backend.form(_REPORTED)

    def of_new(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """The priorities of slots just written."""
        return self.largest.expand(slots.shape).contiguous()

    def of(self, report: Report) -> Float[Array, "p B"]:
        """The priorities of the drawn slots, from the reported errors."""
        assert report.error_view is not None
        return self._reported(report.error_view, report.is_current_view, self._largest_view, *self._options)


def _reported(
    error: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    largest: Float[Tensor, "p 1"],
    smallest: float,
    added: float,
    exponent: float,
) -> Float[Tensor, "p B"]:
    """The priorities of errors. Changes the largest so far in place; errors of overwritten slots do not count there."""
    priorities, now = _computed(error, is_current, largest, smallest, added, exponent)
    largest.copy_(now)
    return priorities


@fused
def _computed(
    error: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    largest: Float[Tensor, "p 1"],
    smallest: float,
    added: float,
    exponent: float,
) -> tuple[Float[Tensor, "p B"], Float[Tensor, "p 1"]]:
    priorities = (error.double().abs().clamp(min=smallest, max=LARGEST_ERROR) + added).pow(exponent)
    return priorities, torch.maximum(largest, torch.where(is_current, priorities, 0).amax(dim=1, keepdim=True))


_REPORTED = Forms(_reported, loops="aes_rl.samplers.priorities_loops:reported")
