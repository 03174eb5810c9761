"""Loss-adjusted prioritized replay (LAP, Fujimoto et al., 2020): prioritized draws without importance weights."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends import fused
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Draw, Report, Signal


@dataclass(frozen=True)
class LAP:
    """Loss-adjusted prioritized replay (LAP)."""

    priority_exponent: float = 0.4
    """Exponent of the absolute TD error: 0 is uniform, 1 is proportional."""
    smallest_error: float = 1.0
    """Absolute TD errors below it count as it: all such slots have the same probability."""
    unbiased: bool = False
    """Whether importance weights correct for the selection. By default all weights are 1, as in the paper, so that
    slots with large errors count more in the objective."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.fraction("priority_exponent", self.priority_exponent)
        checks.positive("smallest_error", self.smallest_error)
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class LAPRule(AbstractRule):
    """m(i) = max(|δ_i|, smallest)^exponent of the last TD error; a new slot gets the largest mass so far."""

    config_type: ClassVar = LAP
    needs = Signal.TD_ERROR

    def __init__(self, config: LAP, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = 0.0
        self.overwrite = config.overwrite
        self.is_unbiased = config.unbiased
        self.largest_mass = torch.ones(setting.members, 1, dtype=torch.float64, device=setting.backend.device)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self.largest_mass.expand(slots.shape).contiguous()

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        error, config = report.signals.td_error, self.config
        assert error is not None
        masses, largest = limited_masses(
            error, report.is_current, self.largest_mass, config.smallest_error, config.priority_exponent
        )
        self.largest_mass.copy_(largest)
        return masses

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        if self.is_unbiased:
            return weighting.unbiased(draw, self.setting.backend, self.setting.dtype)
        return weighting.ones(draw, self.setting.dtype)

    @override
    def advance(self, update_step: int) -> None:
        del update_step

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"largest_mass": self.largest_mass}


@fused
def limited_masses(
    error: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    largest: Float[Tensor, "p 1"],
    smallest_error: float,
    exponent: float,
) -> tuple[Float[Tensor, "p B"], Float[Tensor, "p 1"]]:
    """max(|δ|, smallest)^exponent, and the largest mass so far."""
    masses = error.double().abs().clamp(min=smallest_error).pow(exponent)
    return masses, torch.maximum(largest, torch.where(is_current, masses, 0).amax(dim=1, keepdim=True))
