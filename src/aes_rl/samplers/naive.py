"""Naive adaptive experience selection: the paper's Algorithm 1, which resets all sums in every epoch."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.accumulator import Accumulator
from aes_rl.samplers.network_norms import NetworkNorms, check_networks
from aes_rl.samplers.rule import AbstractRule, Networks, Setting
from aes_rl.types import Array, Report, Signal


@dataclass(frozen=True)
class Naive:
    """Naive adaptive experience selection (the paper's Algorithm 1): collect, reset all sums, then do m updates."""

    updates_per_epoch: int = 100
    """m: updates per epoch of experience; the paper assumes that it is below capacity / batch size."""
    floor: float = 0.2
    """κ: probability reserved for uniform draws; no weight exceeds 1/κ."""
    nu: float = 1000.0
    """ν: added to every slot's sum of squared gradient norms."""
    networks: Networks = None
    """Which networks' gradients form the signal: None is all, ("actor",) the actor's alone, "balanced" all with equal
    influence; "separate" makes one draw for the critics and another for the actor, each from its own gradients."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full; Algorithm 1 does not specify it."""

    def __post_init__(self) -> None:
        checks.count("updates_per_epoch", self.updates_per_epoch)
        checks.floor(self.floor)
        checks.positive("nu", self.nu)
        checks.choice("overwrite", self.overwrite, OVERWRITES)
        check_networks(self.networks, self.overwrite)


class NaiveRule(AbstractRule):
    """The masses of AES, with all sums reset after the last update of every epoch.

    Algorithm 1 resets the sums after collecting. New slots start at zero and nothing is drawn while collecting, so
    resetting before collecting is equivalent, unless overwriting is adaptive, which depends on the sums.
    """

    config_type: ClassVar = Naive
    needs = Signal.GRADIENT_NORM
    is_unbiased = True
    networks_option = "networks"
    updates_options = ("updates_per_epoch",)

    def __init__(self, config: Naive, setting: Setting):
        self.config = config
        self.floor = config.floor
        self.overwrite = config.overwrite
        self.norms = NetworkNorms(config.networks, setting)
        self.is_sequential = self.norms.are_sequential
        self.setting = setting
        self.accumulator = Accumulator(setting, config.nu)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        return self.accumulator.clear(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.accumulator.add(report, self.norms.of(report))

    @override
    def advance(self, update_step: int) -> Float[Tensor, "p N"] | None:
        if update_step % self.config.updates_per_epoch:
            return None
        self.accumulator.decay(0.0)
        return self.accumulator.masses()

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"sums": self.accumulator.sums}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return self.norms.state_dict()
