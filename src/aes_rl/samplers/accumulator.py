"""The running sums w(i) behind every form of adaptive experience selection, and the masses made of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.engines import fused
from aes_rl.errors import UserError
from aes_rl.samplers.rule import Setting
from aes_rl.types import Draw, Signals

Networks = tuple[str, ...] | None
"""Names of the networks whose gradients form the signal; None means all of them."""


class Accumulator:
    """w(i) of a slice of members, float64, and the masses √(w(i) + ν) of S6."""

    def __init__(self, setting: Setting, nu: float):
        self.nu = torch.full((setting.members, 1), nu, dtype=torch.float64, device=setting.engine.device)
        """ν of each member."""
        self._nu_view = setting.engine.view(self.nu)
        self.sums = setting.engine.zeros((setting.members, setting.capacity), torch.float64)
        self._engine = setting.engine
        self._view = setting.engine.view(self.sums)

    def add(self, draw: Draw, squared_norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        """w(i) ← w(i) + d(i)/p(i) for every draw, repeated ones too (S7); the masses of the drawn slots."""
        drawn = (draw.slots_view, draw.probabilities_view)
        return self._engine.accumulate(self._view, *drawn, squared_norms, self._nu_view)

    def clear(self, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        """w(i) ← 0 of slots just written (S10); their masses."""
        return self._engine.clear(self._view, slots, self._nu_view)

    def fade(self, share: float) -> None:
        """Keep a share of every sum, w ← ϱ·w (S9), hard forgetting at ϱ = 0."""
        self.sums *= share

    def follow_the_mean(self, live: Int[Tensor, "1"], share: float) -> None:
        """Set ν to a share of the mean of the sums over the live slots, where it is not zero."""
        mean = share * self.sums.sum(dim=1, keepdim=True) / live.clamp(min=1)
        self.nu.copy_(torch.where(mean > 0, mean, self.nu))

    def masses(self) -> Float[Tensor, "p N"]:
        """The masses of all slots."""
        return self.masses_of(self.sums)

    def masses_of(self, sums: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """√(w + ν)."""
        return (sums + self.nu).sqrt_()


def check_networks(networks: Networks) -> None:
    """Raise unless `networks` names some networks or is None."""
    if networks is not None and (not isinstance(networks, tuple) or not networks):
        raise UserError(f"networks is {networks!r}; give a tuple of names such as ('actor',), or None for all")


def squared_norm(signals: Signals, networks: Networks) -> Float[Tensor, "p B"]:
    """d(i) of S2: the squared norms summed over the chosen networks."""
    reported = signals.gradient_norm
    for name in networks or ():
        if name not in reported:
            raise UserError(f"no gradient norm of network {name!r} was reported; there are {', '.join(reported)}")
    return _total(*(reported[name] for name in networks or reported))


@fused
def _total(*norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
    total, *others = norms
    for other in others:
        total = total.double() + other  # two large float32 numbers may not fit one
    return total
