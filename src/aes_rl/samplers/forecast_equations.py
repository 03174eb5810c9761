"""Forecasts as tensor operations. They run on a GPU, and are the reference for the compiled CPU loops."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends import fused
from aes_rl.types import Counter, last_position

AGES = 24
"""Number of age buckets. Bucket b holds ages from 2^b to 2^(b+1) − 1 updates; the last one holds all older ages too."""
PRIOR_PAIRS = 16.0
"""Weight of the prior that a slope is zero, as a number of pairs. Without evidence, slopes are zero: uniform draws."""
LARGEST_LOG = 300.0
"""Largest absolute logarithm of a mass: e^300 and the sum of a billion of them are finite. Without this limit, norms
that differ by dozens of orders of magnitude have such a large variance that its exponential is infinite."""


class State(NamedTuple):
    """The state of the forecasts, where d is a squared gradient norm."""

    logs: Float[Tensor, "p N"]
    """The last observed log d of each slot."""
    seen: Int[Tensor, "p N"]
    """The update that observed it, counted from 1; 0 if none did."""
    moments: Float[Tensor, "p 3"]
    """Weighted sums of 1, log d and (log d)²."""
    pairs: Float[Tensor, "p ages 2"]
    """Weighted sums of old · new and old · old per age bucket; the mean is subtracted from both."""
    updates: Int[Tensor, "1"]


def observe(
    logs: Float[Tensor, "p N"],
    seen: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 3"],
    pairs: Float[Tensor, "p ages 2"],
    updates: Int[Tensor, "1"],
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    size: Counter,
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    keep: float,
    horizon: int,
) -> Float[Tensor, "p B"]:
    """Learn from one update's norms; return the masses √E[d] of the drawn slots.

    The statistics are first multiplied by `keep`. The masses are for the next look (`next_look`). If a slot is drawn
    twice, its last norm is kept. Norms of zero are ignored.
    """
    updates.add_(1)
    state = State(logs, seen, moments, pairs, updates)
    moments_now, pairs_now, logs_now, seen_now, masses = _observed(
        state, slots, probabilities, size, squared_norms, is_current, keep, horizon
    )
    moments.copy_(moments_now)
    pairs.copy_(pairs_now)
    logs.scatter_(1, slots, logs_now)
    seen.scatter_(1, slots, seen_now)
    return masses


def next_look(size: Counter, batch_size: int, horizon: int) -> Counter:
    """After how many updates a mass is used: at the slot's next draw, or before, at the next forecast of all slots."""
    if isinstance(size, int):
        return max(1, min(horizon, size // batch_size))
    return (size // batch_size).clamp(1, horizon)


def forget(seen: Int[Tensor, "p N"], moments: Float[Tensor, "p 3"], slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
    """Mark slots that were just written as unobserved; return their masses."""
    seen.scatter_(1, slots, 0)
    return prior_mass(moments).expand(slots.shape).contiguous()


@fused
def _observed(
    state: State,
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    size: Counter,
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    keep: float,
    horizon: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    logs, seen, moments, pairs, updates = state
    norms = squared_norms.double()
    is_observed = is_current & (norms > 0)
    new_logs = torch.where(is_observed, norms, 1.0).log()
    # Importance weights: the sums estimate means over all live slots.
    weights = torch.where(is_observed, 1 / (size * probabilities), 0.0)
    sums = torch.stack([weights, weights * new_logs, weights * new_logs.square()], dim=-1).sum(dim=1)
    moments = keep * moments + sums
    mean, variance = mean_and_variance(moments)

    old_logs, old_seen = logs.gather(1, slots), seen.gather(1, slots)
    old_deviation = old_logs.double() - mean
    buckets = bucket_of(updates - old_seen)
    pair_weights = torch.where((old_seen > 0) & is_observed, weights, 0.0)
    products = torch.stack(
        [pair_weights * old_deviation * (new_logs - mean), pair_weights * old_deviation.square()], dim=-1
    )
    is_in_bucket = (buckets.unsqueeze(1) == torch.arange(AGES, device=slots.device).view(1, AGES, 1)).double()
    pairs = keep * pairs + (is_in_bucket.unsqueeze(-1) * products.unsqueeze(1)).sum(dim=2)

    last, is_any_observed = last_position(slots, is_observed)
    logs_now = torch.where(is_any_observed, new_logs.gather(1, last).float(), old_logs)
    seen_now = torch.where(is_any_observed, updates.int(), old_seen)
    _, _, slopes = statistics_of(moments, pairs)
    slope = slopes.gather(1, bucket_of((updates - seen_now).clamp(min=next_look(size, slots.shape[1], horizon))))
    slope = torch.where(seen_now > 0, slope, 0.0)
    return moments, pairs, logs_now, seen_now, mass_of(expected_log(logs_now.double(), slope, mean, variance))


def statistics_of(
    moments: Float[Tensor, "p 3"], pairs: Float[Tensor, "p ages 2"]
) -> tuple[Float[Tensor, "p 1"], Float[Tensor, "p 1"], Float[Tensor, "p ages"]]:
    """Mean and variance of log d, and per age bucket the regression slope of new on old log d, clipped to [0, 1]."""
    mean, variance = mean_and_variance(moments)
    prior = PRIOR_PAIRS * variance.clamp(min=1e-12)
    slopes = pairs[..., 0] / (pairs[..., 1] + prior)
    return mean, variance, slopes.clamp(0, 1)


def expected_log(
    log: Float[Tensor, "..."] | float,
    slope: Float[Tensor, "..."],
    mean: Float[Tensor, "p 1"],
    variance: Float[Tensor, "p 1"],
) -> Float[Tensor, "..."]:
    """Log E[d] of a slot whose last log d is `log`: the forecast of log d plus half of its residual variance."""
    return mean + slope * (log - mean) + 0.5 * variance * (1 - slope.square())


@fused
def forecast(
    logs: Float[Tensor, "p N"],
    seen: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 3"],
    pairs: Float[Tensor, "p ages 2"],
    updates: Int[Tensor, "1"],
) -> Float[Tensor, "p N"]:
    """The masses √E[d] of all slots at their current ages."""
    mean, variance, slopes = statistics_of(moments, pairs)
    slope = torch.where(seen > 0, slopes.gather(1, bucket_of(updates - seen)), 0.0)
    return mass_of(expected_log(logs.double(), slope, mean, variance))


@fused
def prior_mass(moments: Float[Tensor, "p 3"]) -> Float[Tensor, "p 1"]:
    """√E[d] of a slot that was never observed."""
    mean, variance = mean_and_variance(moments)
    return mass_of(mean + 0.5 * variance)


def mass_of(log: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """√E[d] from log E[d], clipped so that it is finite and positive."""
    return (0.5 * log).clamp(-LARGEST_LOG, LARGEST_LOG).exp()


def bucket_of(ages: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """⌊log2 age⌋, at most AGES − 1; an age below 1 counts as 1."""
    # frexp returns age = m · 2^e with m in [0.5, 1), so that ⌊log2 age⌋ = e − 1.
    return (torch.frexp(ages.clamp(min=1).float()).exponent.long() - 1).clamp(max=AGES - 1)


def mean_and_variance(moments: Float[Tensor, "p moments"]) -> tuple[Float[Tensor, "p 1"], Float[Tensor, "p 1"]]:
    """Mean and variance of log d; zero before the first observation."""
    total = moments[:, :1].clamp(min=1e-300)
    mean = moments[:, 1:2] / total
    return mean, (moments[:, 2:3] / total - mean.square()).clamp(min=0)
