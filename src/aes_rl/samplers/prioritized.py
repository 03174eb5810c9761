"""Prioritized experience replay: the proportional variant of Schaul et al. (2015)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends import fused
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.rule import AbstractRule, Setting, require_total_updates, schedule
from aes_rl.types import Draw, Report, Signal


@dataclass(frozen=True)
class Prioritized:
    """Prioritized experience replay, the paper's "PriExp"."""

    priority_exponent: float = 0.6
    """Exponent of the absolute TD error: 0 is uniform, 1 is proportional."""
    weight_exponent: float = 0.4
    """Exponent of the importance weights at the start of the run: 0 corrects no bias, 1 all of it."""
    weight_exponent_end: float | None = 1.0
    """Exponent of the importance weights at the end of the run, annealed linearly over the updates; None keeps it
    constant."""
    smallest_error: float = 1e-6
    """Added to every absolute TD error, so that no slot has probability zero."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.fraction("priority_exponent", self.priority_exponent)
        checks.fraction("weight_exponent", self.weight_exponent)
        if self.weight_exponent_end is not None:
            checks.fraction("weight_exponent_end", self.weight_exponent_end)
        checks.positive("smallest_error", self.smallest_error)
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class PrioritizedRule(AbstractRule):
    """m(i) = (|δ_i| + ε)^exponent of the last reported TD error; a new slot gets the largest mass so far."""

    config_type: ClassVar = Prioritized
    needs = Signal.TD_ERROR
    is_unbiased = False

    def __init__(self, config: Prioritized, setting: Setting):
        if config.weight_exponent_end is not None:
            require_total_updates("the weight exponent of prioritized replay", setting)
        self.config = config
        self.setting = setting
        self.floor = 0.0
        self.overwrite = config.overwrite
        self.largest_mass = torch.ones(setting.members, 1, dtype=torch.float64, device=setting.backend.device)
        self.weight_exponent = torch.full_like(self.largest_mass, config.weight_exponent)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self.largest_mass.expand(slots.shape).contiguous()

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        error, config = report.signals.td_error, self.config
        assert error is not None
        masses, largest = _masses(
            error, report.is_current, self.largest_mass, config.smallest_error, config.priority_exponent
        )
        self.largest_mass.copy_(largest)
        return masses

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        return weighting.annealed(draw, self.weight_exponent, self.setting.dtype)

    @override
    def advance(self, update_step: int) -> None:
        config = self.config
        now = schedule(config.weight_exponent, config.weight_exponent_end, update_step, self.setting)
        self.weight_exponent.fill_(now)

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"largest_mass": self.largest_mass, "weight_exponent": self.weight_exponent}


@fused
def _masses(
    error: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    largest: Float[Tensor, "p 1"],
    smallest_error: float,
    exponent: float,
) -> tuple[Float[Tensor, "p B"], Float[Tensor, "p 1"]]:
    """(|δ| + ε)^exponent, and the largest mass so far."""
    masses = (error.double().abs() + smallest_error).pow(exponent)
    return masses, torch.maximum(largest, torch.where(is_current, masses, 0).amax(dim=1, keepdim=True))
