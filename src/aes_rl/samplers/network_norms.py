"""The signal of gradient-norm rules: the squared gradient norms of a sample's networks as one number."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl import weighting
from aes_rl.backends import Forms, fused
from aes_rl.backends.distribution import Overwrite
from aes_rl.errors import UserError
from aes_rl.samplers.rule import Networks, Setting
from aes_rl.types import CRITIC, Array, Report

_NAMES = ("balanced", "separate")
_MEMORY = 1000
"""Time constant, in updates, of the networks' means."""
_MOST = 8
"""Networks that can be balanced."""


def check_networks(networks: Networks, overwrite: Overwrite) -> None:
    """Raise unless `networks` is one of the forms above, and agrees with the way in which slots are overwritten."""
    if (isinstance(networks, str) and networks not in _NAMES) or networks == ():
        raise UserError(
            f"networks is {networks!r}; give 'balanced', 'separate', a tuple of names such as ('actor',), or None for "
            "the sum of all"
        )
    if not (networks is None or isinstance(networks, str | tuple)):
        raise UserError(f"networks is {networks!r}; give a tuple of names such as ('actor',), or None for all")
    if isinstance(networks, tuple) and not all(isinstance(name, str) and name for name in networks):
        raise UserError(f"networks is {networks!r}; every name in it must be a text, such as 'actor'")
    if isinstance(networks, tuple) and len(set(networks)) != len(networks):
        raise UserError(f"networks is {networks!r}; give each name once")
    if networks == "separate" and overwrite != "fifo":
        raise UserError(
            f"overwrite is {overwrite!r} and networks is 'separate'; give overwrite='fifo': the draws of a member must "
            "overwrite the same slots"
        )


class NetworkNorms:
    """d(i) of a report, for a slice of members."""

    def __init__(self, networks: Networks, setting: Setting):
        self._networks = networks
        self.are_sequential = networks != "balanced"
        """Whether the norms of a slot do not depend on the rest of its batch."""
        self._backend = setting.backend
        self._sums = torch.zeros(setting.members, 1 + _MOST, dtype=torch.float64, device=setting.backend.device)
        """Weighted sums of 1 and of each network's norm over the draws, with exponential decay."""
        self._view = setting.backend.view(self._sums)
        self._balance = setting.backend.form(_BALANCE)

    def of(self, report: Report) -> Float[Array, "p B"]:
        """d(i) of every drawn slot, in the form that the backend's loops take."""
        reported = report.norm_views
        if self._networks == "balanced":
            if len(reported) > _MOST:
                raise UserError(f"{len(reported)} networks reported gradient norms; 'balanced' takes at most {_MOST}")
            weights = weighting.unbiased(report.draw, self._backend, torch.float64)
            # The critics come first, so that the others keep their places where an actor is not trained every time.
            norms = [reported[name] for name in sorted(reported, key=lambda name: (name != CRITIC, name))]
            return self._balance(self._view, weights, report.is_current_view, norms, 1 - 1 / _MEMORY)
        chosen = self._networks if isinstance(self._networks, tuple) else tuple(reported)
        for name in chosen:
            if name not in reported:
                raise UserError(f"no gradient norm of network {name!r} was reported, only {', '.join(reported)}")
        norms = [reported[name] for name in chosen]
        return norms[0] if len(norms) == 1 else self._backend.total(norms)

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors that change over time."""
        return {"network_sums": self._sums} if self._networks == "balanced" else {}


def _balanced(
    sums: Float[Tensor, "p 9"],
    weights: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    norms: list[Float[Tensor, "p B"]],
    keep: float,
) -> Float[Tensor, "p B"]:
    """Σ_k d_k(i) / (mean of d_k): update the means with these draws, then divide by them."""
    sums_now, total = _balanced_with(sums, weights, is_current, norms, keep)
    sums.copy_(sums_now)
    return total


@fused
def _balanced_with(
    sums: Float[Tensor, "p 9"],
    weights: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    norms: list[Float[Tensor, "p B"]],
    keep: float,
) -> tuple[Tensor, Tensor]:
    counted = torch.where(is_current, weights, 0.0)
    sound = [torch.where(is_current, norm, 0.0).double() for norm in norms]
    parts = [counted, *(counted * norm for norm in sound)]
    parts += [torch.zeros_like(counted)] * (sums.shape[1] - len(parts))
    now = keep * sums + torch.stack([part.sum(dim=1) for part in parts], dim=1)
    means = now / now[:, :1].clamp(min=1e-300)
    shares = [norm / means[:, k : k + 1].clamp(min=1e-300) for k, norm in enumerate(sound, start=1)]
    return now, torch.stack(shares).sum(dim=0)


_BALANCE = Forms(_balanced, loops="aes_rl.samplers.network_norms_loops:balance")
