"""The running sums w(i) that all variants of adaptive experience selection share, and the masses computed from them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends import Forms
from aes_rl.samplers.rule import Setting
from aes_rl.types import Array, Report


class Accumulator:
    """The sums w(i) of a slice of members, in float64, and the masses √(w(i) + ν)."""

    def __init__(self, setting: Setting, nu: float):
        backend = setting.backend
        self.nu = torch.full((setting.members, 1), nu, dtype=torch.float64, device=backend.device)
        """ν of each member."""
        self.sums = backend.zeros((setting.members, setting.capacity), torch.float64)
        self._views = backend.view(self.sums), backend.view(self.nu)
        self._accumulate, self._clear = backend.form(_ACCUMULATE), backend.form(_CLEAR)

    def add(self, report: Report, squared_norms: Float[Array, "p B"]) -> Float[Array, "p B"]:
        """Add d(i)/p(i) to w(i) for every draw, including repeated ones; return the masses of the drawn slots."""
        sums, nu = self._views
        draw = report.draw
        return self._accumulate(
            sums, draw.slots_view, draw.probabilities_view, squared_norms, report.is_current_view, nu
        )

    def clear(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        """Set w(i) to 0 for slots just written; return their masses."""
        sums, nu = self._views
        return self._clear(sums, slots, nu)

    def decay(self, share: float) -> None:
        """Multiply every sum by ϱ (`share`); ϱ = 0 is hard forgetting."""
        self.sums *= share

    def set_nu_to_mean(self, live: Int[Tensor, "1"], share: float) -> None:
        """Set ν to `share` times the mean of the sums over the live slots; keep ν where that is zero."""
        mean = share * self.sums.sum(dim=1, keepdim=True) / live.clamp(min=1)
        self.nu.copy_(torch.where(mean > 0, mean, self.nu))

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots."""
        return self.masses_of(self.sums)

    def masses_of(self, sums: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """√(w + ν)."""
        return (sums + self.nu).sqrt_()


def _accumulated(
    sums: Float[Tensor, "p N"],
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    nu: Float[Tensor, "p 1"],
) -> Float[Tensor, "p B"]:
    """Add d(i)/p(i) to w(i) for every draw, including repeated ones; return the masses √(w(i) + ν)."""
    sums.scatter_add_(1, slots, torch.where(is_current, squared_norms, 0) / probabilities)
    return (sums.gather(1, slots) + nu).sqrt()


def _cleared(sums: Float[Tensor, "p N"], slots: Int[Tensor, "p K"], nu: Float[Tensor, "p 1"]) -> Float[Tensor, "p K"]:
    """Set w(i) to 0 for slots just written; return their masses √ν."""
    sums.scatter_(1, slots, 0.0)
    return nu.sqrt().expand(slots.shape).contiguous()


_ACCUMULATE = Forms(
    _accumulated,
    loops="aes_rl.samplers.accumulator_loops:accumulate",
    kernels="aes_rl.samplers.accumulator_kernels:accumulate",
)
_CLEAR = Forms(_cleared, loops="aes_rl.samplers.accumulator_loops:clear")
