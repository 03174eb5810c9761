"""Large batch experience replay (LaBER, Lahire et al., 2022): uniform candidates, of which TD errors choose some."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Draw, Report, Signal


@dataclass(frozen=True)
class LaBER:
    """Large batch experience replay (LaBER)."""

    candidates: int = 4
    """m: uniform candidates per draw. The critics' forward pass on all of them is the cost of the method."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.count("candidates", self.candidates)
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class LaBERRule(AbstractRule):
    """Uniform masses: the choice among the candidates is made by `Replay.sample`, since it needs the learner."""

    config_type: ClassVar = LaBER
    needs = Signal.NONE
    is_unbiased = True

    def __init__(self, config: LaBER, setting: Setting):
        self.setting = setting
        self.floor = 1.0
        self.overwrite = config.overwrite

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return torch.ones_like(slots, dtype=torch.float64)

    @override
    def feedback(self, report: Report) -> None:
        del report

    @override
    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        return weighting.unbiased(draw, self.setting.backend, self.setting.dtype)

    @override
    def advance(self, update_step: int) -> None:
        del update_step

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {}
