"""Adaptive experience selection (AES): the paper's Algorithm 2, with hard, soft and annealed forgetting."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.accumulator import Accumulator
from aes_rl.samplers.network_norms import NetworkNorms, check_networks
from aes_rl.samplers.rule import AbstractRule, Networks, Setting, require_total_updates, schedule
from aes_rl.types import Array, Report, Signal


@dataclass(frozen=True)
class Adaptive:
    """Adaptive experience selection (AES), the paper's Algorithm 2."""

    floor: float = 0.2
    """κ: probability reserved for uniform draws; no weight exceeds 1/κ."""
    nu: float | Literal["auto"] = 1000.0
    """ν: added to every slot's sum of squared gradient norms. Its scale is that of the sums, so it depends on the task;
    "auto" makes it follow the mean of the sums."""
    retention: float = 0.7
    """ϱ: fraction of every sum that forgetting keeps; 0 is the hard restart of Algorithm 2, 1 never forgets."""
    retention_end: float | None = None
    """ϱ at the end of the run, annealed linearly over the updates; None keeps it constant."""
    forget_every: int | None = None
    """M: forget every M updates; None uses the largest M with M² below the capacity."""
    networks: Networks = None
    """Which networks' gradients form the signal: None is all, ("actor",) the actor's alone, "balanced" all with equal
    influence; "separate" makes one draw for the critics and another for the actor, each from its own gradients."""
    overwrite: Overwrite = "adaptive"
    """Which slot is overwritten when the buffer is full."""
    inherit: bool = False
    """Whether a new transition inherits the sum of the one it overwrites, as in the paper's Algorithm 2."""

    def __post_init__(self) -> None:
        checks.floor(self.floor)
        if self.nu != "auto":
            checks.number("nu", self.nu, 'or "auto"')
            checks.positive("nu", self.nu)
        checks.fraction("retention", self.retention)
        if self.retention_end is not None:
            checks.fraction("retention_end", self.retention_end)
        if self.forget_every is not None:
            checks.count("forget_every", self.forget_every)
        checks.choice("overwrite", self.overwrite, OVERWRITES)
        check_networks(self.networks, self.overwrite)


def default_forget_every(capacity: int) -> int:
    """The largest M with M² below the capacity, as Theorem 1 requires."""
    return max(1, math.isqrt(capacity - 1))


class AdaptiveRule(AbstractRule):
    """m(i) = √(w(i) + ν), with w(i) the importance-weighted sum of the squared gradient norms observed at slot i."""

    config_type: ClassVar = Adaptive
    needs = Signal.GRADIENT_NORM
    is_unbiased = True
    networks_option = "networks"
    updates_options = ("forget_every",)

    def __init__(self, config: Adaptive, setting: Setting):
        if config.retention_end is not None:
            require_total_updates("retention", setting)
        self.config = config
        self.setting = setting
        self.floor = config.floor
        self.overwrite = config.overwrite
        self.norms = NetworkNorms(config.networks, setting)
        self.is_sequential = self.norms.are_sequential
        self.forget_every = config.forget_every or default_forget_every(setting.capacity)
        self.has_own_nu = config.nu == "auto"
        self.accumulator = Accumulator(setting, 1.0 if config.nu == "auto" else config.nu)
        self.live = torch.zeros(1, dtype=torch.int64, device=setting.backend.device)

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        if self.has_own_nu:
            self.live.copy_(torch.maximum(self.live, slots.max() + 1))  # live slots are the first ones
        if self.config.inherit:
            return self.accumulator.masses_of(self.accumulator.sums.gather(1, slots))
        return self.accumulator.clear(slots)

    @override
    def feedback(self, report: Report) -> Float[Array, "p B"]:
        return self.accumulator.add(report, self.norms.of(report))

    @override
    def advance(self, update_step: int) -> Float[Tensor, "p N"] | None:
        """Forget after every M-th update. Automatic ν is set then, and after updates 1, 2, 4, … below M."""
        config, is_due = self.config, update_step % self.forget_every == 0
        is_early = update_step < self.forget_every and update_step.bit_count() == 1
        share = schedule(config.retention, config.retention_end, update_step, self.setting) if is_due else 1.0
        if self.has_own_nu and (is_due or is_early):
            # Hard forgetting leaves all sums at zero, so ν takes the scale of the sums before they are forgotten.
            self.accumulator.set_nu_to_mean(self.live, share or 1.0)
        if is_due:
            self.accumulator.decay(share)
        return self.accumulator.masses() if is_due or (self.has_own_nu and is_early) else None

    @override
    def slot_state(self) -> dict[str, Tensor]:
        return {"sums": self.accumulator.sums}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        own = {"nu": self.accumulator.nu, "live": self.live} if self.has_own_nu else {}
        return own | self.norms.state_dict()
