"""Draw in proportion to the last observed gradient norm: the simplest use of feedback, a laboratory baseline."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl import checks, weighting
from aes_rl.backends import fused
from aes_rl.backends.distribution import OVERWRITES, Overwrite
from aes_rl.samplers.network_norms import NetworkNorms, check_networks
from aes_rl.samplers.rule import AbstractRule, Networks, Setting
from aes_rl.types import Report, Signal, as_tensor


@dataclass(frozen=True)
class LastValue:
    """Selection in proportion to the last observed gradient norm of each slot."""

    floor: float = 0.1
    """κ: probability reserved for uniform draws; no weight exceeds 1/κ."""
    memory: int = 1000
    """Time constant, in updates, of the running mean that new slots start with."""
    networks: Networks = None
    """Which networks' gradients form the signal: None is all, ("actor",) the actor's alone, "balanced" all with equal
    influence; "separate" makes one draw for the critics and another for the actor, each from its own gradients."""
    overwrite: Overwrite = "fifo"
    """Which slot is overwritten when the buffer is full."""

    def __post_init__(self) -> None:
        checks.floor(self.floor)
        checks.count("memory", self.memory)
        checks.choice("overwrite", self.overwrite, OVERWRITES)
        check_networks(self.networks, self.overwrite)


class LastValueRule(AbstractRule):
    """m(i) = √d(i) of the last report; a new slot starts with the mean of √d over the buffer."""

    config_type: ClassVar = LastValue
    needs = Signal.GRADIENT_NORM
    is_unbiased = True
    networks_option = "networks"
    updates_options = ("memory",)

    def __init__(self, config: LastValue, setting: Setting):
        self.config = config
        self.setting = setting
        self.floor = config.floor
        self.overwrite = config.overwrite
        self.norms = NetworkNorms(config.networks, setting)
        self.is_sequential = self.norms.are_sequential
        self.moments = torch.zeros(setting.members, 2, dtype=torch.float64, device=setting.backend.device)
        """Importance-weighted sums of 1 and √d over the draws, with exponential decay."""

    @override
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        return _mean(self.moments).expand(slots.shape).contiguous()

    @override
    def feedback(self, report: Report) -> Float[Tensor, "p B"]:
        norms = as_tensor(self.norms.of(report))
        weights = weighting.unbiased(report.draw, self.setting.backend, torch.float64)
        moments, masses = _learned(self.moments, weights, report.is_current, norms, 1 - 1 / self.config.memory)
        self.moments.copy_(moments)
        return masses

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return {"moments": self.moments} | self.norms.state_dict()


@fused
def _learned(
    moments: Float[Tensor, "p 2"],
    weights: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    squared_norms: Float[Tensor, "p B"],
    keep: float,
) -> tuple[Float[Tensor, "p 2"], Float[Tensor, "p B"]]:
    """The sums and the masses after a report; no mass is below a thousandth of the mean."""
    roots = torch.where(is_current, squared_norms, 0).double().sqrt()
    weights = torch.where(roots > 0, weights, 0.0)
    moments = keep * moments + torch.stack([weights, weights * roots], dim=-1).sum(dim=1)
    return moments, torch.maximum(roots, 1e-3 * _mean(moments)).clamp(min=1e-150)


def _mean(moments: Float[Tensor, "p 2"]) -> Float[Tensor, "p 1"]:
    """The mean of √d; 1 before the first report."""
    return torch.where(moments[:, :1] > 0, moments[:, 1:] / moments[:, :1].clamp(min=1e-300), 1.0).clamp(min=1e-150)
