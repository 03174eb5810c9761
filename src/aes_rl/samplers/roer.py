"""Regularized optimal experience replay (ROER, Li et al., 2024): priorities that follow exp(δ/β) a little per visit."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends import fused
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.errors import UserError
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Report, Signal


@dataclass(frozen=True)
class ROER:
    """Regularized optimal experience replay (ROER)."""

    temperature: float = 4.0
    """β: a TD error larger by β has a ratio e times as large. It has the unit of a reward."""
    rate: float = 0.01
    """λ: how far a priority moves per visit."""
    largest_ratio: float = 50.0
    """exp(|δ|/β) is limited to it."""
    smallest_priority: float = 1.0
    """No priority is below it; new slots start with it."""
    unbiased: bool = False
    """Whether importance weights correct for the selection. By default all weights are 1: the objective is that of the
    shifted distribution, which is the purpose of the method."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.positive("temperature", self.temperature)
        checks.fraction("rate", self.rate)
        checks.positive("smallest_priority", self.smallest_priority)
        checks.positive("largest_ratio", self.largest_ratio)
        if self.largest_ratio <= 1:
            raise UserError(f"largest_ratio is {self.largest_ratio}; it must be finite and above 1")
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class ROERRule(AbstractRule):
    """m ← max((λ·e/ē + 1 − λ)·m, smallest) with e = exp(|δ|/β), limited, and ē the buffer's mean of m·e."""

    config_type: ClassVar = ROER
    needs = Signal.TD_ERROR
    is_sequential = False

    def __init__(self, config: ROER, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = 0.0
        self.overwrite = config.overwrite
        self.is_unbiased = config.unbiased
        self.priorities = setting.backend.zeros((setting.members, setting.capacity), torch.float64)
        """The mass of every slot."""

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        start = torch.full_like(slots, self.config.smallest_priority, dtype=torch.float64)
        self.priorities.scatter_(1, slots, start)
        return start

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        error, config, slots = report.signals.td_error, self.config, report.draw.slots
        assert error is not None
        before = self.priorities.gather(1, slots)
        weights = weighting.unbiased(report.draw, self.setting.backend, torch.float64)
        moved = _moved(
            before, error, weights, report.is_current,
            config.temperature, config.rate, config.largest_ratio, config.smallest_priority,
        )  # fmt: skip
        priorities = report.last_of_slot(moved, before)
        self.priorities.scatter_(1, slots, priorities)
        return priorities

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"priorities": self.priorities}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {}


@fused
def _moved(
    before: Float[Tensor, "p B"],
    error: Float[Tensor, "p B"],
    weights: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    temperature: float,
    rate: float,
    largest_ratio: float,
    smallest: float,
) -> Float[Tensor, "p B"]:
    """The priorities after a visit. The weights make a mean over draws one over the buffer."""
    size = torch.where(is_current, error, 0).double().abs() / temperature
    ratio = size.clamp(max=math.log(largest_ratio)).exp()
    terms = torch.where(is_current, weights * before * ratio, 0)
    mean = terms.sum(dim=1, keepdim=True) / is_current.sum(dim=1, keepdim=True).clamp(min=1)
    return ((rate * ratio / mean.clamp(min=1e-300) + 1 - rate) * before).clamp(min=smallest)
