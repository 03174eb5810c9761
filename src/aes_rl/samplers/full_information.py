"""Adaptive experience selection with full information: a laboratory rule that observes every live slot."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.accumulator import Accumulator
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Array, Report, Signal


@dataclass(frozen=True)
class FullInformation:
    """AES that observes the gradient norms of all live slots after every update; it needs no floor."""

    nu: float = 1000.0
    """ν: added to every slot's sum of squared gradient norms."""
    overwrite: Overwrite = "adaptive"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.positive("nu", self.nu)
        checks.choice("overwrite", self.overwrite, OVERWRITES)


class FullInformationRule(AbstractRule):
    """m(i) = √(w(i) + ν) with w(i) ← w(i) + d(i) for all live slots, through `observe_all`."""

    config_type: ClassVar = FullInformation
    needs = Signal.EVERY_GRADIENT_NORM
    is_unbiased = True

    def __init__(self, config: FullInformation, setting: Setting):
        self.floor = 0.0
        self.overwrite = config.overwrite
        self.setting = setting
        self.accumulator = Accumulator(setting, config.nu)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self.accumulator.clear(slots)

    @override
    def feedback(self, report: Report) -> None:
        del report

    @override
    def observe_all(self, squared_norms: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        sums = self.accumulator.sums[:, : squared_norms.shape[1]]
        sums += squared_norms
        return self.accumulator.masses_of(sums)

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"sums": self.accumulator.sums}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {}
