"""Prioritized experience replay: the proportional variant of Schaul et al. (2015)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.priorities import Priorities
from aes_rl.samplers.rule import AbstractRule, Setting, require_total_updates, schedule
from aes_rl.types import Array, Draw, Report, Signal


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
        self.priorities = Priorities(setting, config.priority_exponent, added=config.smallest_error)
        self.weight_exponent = torch.full_like(self.priorities.largest, config.weight_exponent)
        self._exponent_view = setting.backend.view(self.weight_exponent)
        self._annealed = setting.backend.form(weighting.ANNEALED)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self.priorities.of_new(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.priorities.of(report)

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        return self._annealed(draw.probabilities_view, self._exponent_view, self.setting.dtype)

    @override
    def advance(self, update_step: int) -> None:
        config = self.config
        now = schedule(config.weight_exponent, config.weight_exponent_end, update_step, self.setting)
        self._exponent_view[:] = now

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"largest_mass": self.priorities.largest, "weight_exponent": self.weight_exponent}
