"""Uniform replay: every live slot has the same probability, and by default the oldest is overwritten."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.rule import AbstractRule, SamplerConfig, Setting
from aes_rl.types import Report, Signal


@dataclass(frozen=True)
class Uniform:
    """Uniform replay, the paper's "Fifo"."""

    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class UniformRule(AbstractRule):
    """p(i) = 1/n: the floor is 1, so the masses are not used."""

    config_type: ClassVar[type[SamplerConfig]] = Uniform
    needs = Signal.NONE
    is_unbiased = True

    def __init__(self, config: Uniform, setting: Setting):
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
    def state_dict(self) -> dict[str, Tensor]:
        return {}
