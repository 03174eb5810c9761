"""Loss-adjusted approximate actor prioritized replay (LA3P, Saglam et al., 2023): small TD errors for the actor."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.samplers.priorities import Priorities
from aes_rl.samplers.rule import AbstractRule, Setting
from aes_rl.types import Report, Signal, as_tensor


@dataclass(frozen=True)
class LA3P:
    """Loss-adjusted approximate actor prioritized replay (LA3P): a draw for the critics and one for the actor."""

    priority_exponent: float = 0.4
    """Exponent of the absolute TD error: 0 is uniform, 1 is proportional."""
    smallest_error: float = 1.0
    """Absolute TD errors below it count as it."""
    floor: float = 0.5
    """κ: probability reserved for uniform draws, the paper's uniform fraction."""
    unbiased: bool = False
    """Whether importance weights correct for the selection. By default all weights are 1, as in the paper."""

    def __post_init__(self) -> None:
        checks.fraction("priority_exponent", self.priority_exponent)
        checks.positive("smallest_error", self.smallest_error)
        checks.fraction("floor", self.floor)


@dataclass(frozen=True)
class LA3POfActor(LA3P):
    """The configuration of the actor's draw, which the replay adds."""


class LA3PRule(AbstractRule):
    """For the critics m(i) = max(|δ_i|, smallest)^exponent, and 1/m(i) for the actor. New slots: largest m so far."""

    config_type: ClassVar = LA3P
    actor_config_type: ClassVar = LA3POfActor
    needs = Signal.TD_ERROR

    def __init__(self, config: LA3P, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = config.floor
        self.overwrite = "fifo"
        self.is_unbiased = config.unbiased
        self.priorities = Priorities(setting, config.priority_exponent, smallest=config.smallest_error)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return self._masses(self.priorities.of_new(slots))

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        return self._masses(as_tensor(self.priorities.of(report)))

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"largest_priority": self.priorities.largest}

    def _masses(self, priorities: Float[Tensor, "p X"]) -> Float[Tensor, "p X"]:
        return priorities.reciprocal() if isinstance(self.config, LA3POfActor) else priorities
