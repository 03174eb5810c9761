"""Large batch experience replay (LaBER, Lahire et al., 2022): uniform candidates, of which TD errors choose some."""

from dataclasses import dataclass
from typing import ClassVar

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.uniform import UniformRule


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


class LaBERRule(UniformRule):
    """Uniform masses: the choice among the candidates is made by `Replay.sample`, since it needs the learner."""

    config_type: ClassVar = LaBER
    candidates_option = "candidates"
