"""Loss-adjusted prioritized replay (LAP, Fujimoto et al., 2020): prioritized draws without importance weights."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.priorities import Priorities
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Array, Report, Signal


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
        self.priorities = Priorities(setting, config.priority_exponent, smallest=config.smallest_error)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self.priorities.of_new(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.priorities.of(report)

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"largest_mass": self.priorities.largest}
