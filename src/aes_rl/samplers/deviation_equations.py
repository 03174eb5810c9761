"""Forecasts of deviations as tensor operations: on a GPU, and as the reference for the compiled CPU loops.

All norms drift together as training goes on, faster than single slots change places. A slot's deviation is its log d
minus the mean of log d at the same moment, so that the common drift drops out. The deviation of the next report is
regressed on the running mean of the earlier ones, separately for slots with few and with many reports and for short
and long ages. The equations are in docs/samplers/predictive.md.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.backends import fused
from aes_rl.samplers.forecast_equations import (
    AGES,
    LARGEST_LOG,
    PRIOR_PAIRS,
    bucket_of,
    mass_of,
    mean_and_variance,
    next_look,
)
from aes_rl.types import Counter, last_position

REPORTS = 6
"""Number of buckets by reports: none, 1, 2–3, 4–7, 8–15, 16 and more."""
MOST_REPORTS = 16
"""Reports are counted up to this number."""
LEAST_GAIN = 0.2
"""Smallest share of the newest report in a slot's running mean."""
LEAST_SHARE = 0.01
"""A squared norm below this share of the mean norm counts as this share. Norms near zero, as of an actor whose actions
are saturated, matter to no gradient, but their logarithms would dominate mean and variance of log d."""
LARGEST_NORM = math.exp(2 * LARGEST_LOG)
"""Squared norms above count as this: sums of them are finite."""
MOMENTS = 4
"""Weighted sums of 1, log d, (log d)² and d."""
SUMS = (REPORTS * AGES, 6)
"""Weighted sums per bucket: of 1, z, y, z², z·y and y², where z is the running mean and y the new deviation."""


class State(NamedTuple):
    """The state of the forecasts, where d is a squared gradient norm."""

    deviations: Float[Tensor, "p N"]
    """Running mean of each slot's log d minus the mean of log d at that moment; 0 without reports."""
    since: Int[Tensor, "p N"]
    """The update of each slot's last report or, without reports, the last one before it was written."""
    reports: Int[Tensor, "p N"]
    """Number of reports on each slot since it was written."""
    moments: Float[Tensor, "p 4"]
    """Weighted sums of 1, log d, (log d)² and d; they fade fast."""
    sums: Float[Tensor, "p buckets 6"]
    """Sums of the regression per bucket of reports and age; they fade slowly."""
    updates: Int[Tensor, "1"]


def observe(
    deviations: Float[Tensor, "p N"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets 6"],
    updates: Int[Tensor, "1"],
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    size: Counter,
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    keep_moments: float,
    keep_sums: float,
    horizon: int,
) -> Float[Tensor, "p B"]:
    """Learn from one update's norms; return the masses √E[d] of the drawn slots.

    If a slot is drawn twice, its last norm is kept. Norms of zero are ignored. The masses are for the next look
    (`next_look`).
    """
    updates.add_(1)
    state = State(deviations, since, reports, moments, sums, updates)
    moments_now, sums_now, deviations_now, since_now, reports_now, masses = _observed(
        state, slots, probabilities, size, squared_norms, is_current, keep_moments, keep_sums, horizon
    )
    moments.copy_(moments_now)
    sums.copy_(sums_now)
    deviations.scatter_(1, slots, deviations_now)
    since.scatter_(1, slots, since_now)
    reports.scatter_(1, slots, reports_now)
    return masses


def forget(
    deviations: Float[Tensor, "p N"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets 6"],
    updates: Int[Tensor, "1"],
    slots: Int[Tensor, "p K"],
    horizon: int,
) -> Float[Tensor, "p K"]:
    """Mark slots that were just written as unreported; return their masses."""
    deviations.scatter_(1, slots, 0.0)
    since.scatter_(1, slots, updates.int().expand(slots.shape))
    reports.scatter_(1, slots, 0)
    return _prior_mass(moments, sums, horizon).expand(slots.shape).contiguous()


@fused
def _observed(
    state: State,
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    size: Counter,
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    keep_moments: float,
    keep_sums: float,
    horizon: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    is_observed = is_current & (squared_norms > 0)
    norms = torch.where(is_observed, squared_norms.double(), 1.0).clamp(max=LARGEST_NORM)
    # Importance weights: the sums estimate means over all live slots.
    weights = torch.where(is_observed, 1 / (size * probabilities), 0.0)
    faded = keep_moments * state.moments
    total, total_norm = faded[:, :1] + weights.sum(dim=1, keepdim=True), faded[:, 3:] + (weights * norms).sum(1, True)
    logs = norms.maximum(LEAST_SHARE * total_norm / total.clamp(min=1e-300)).log()
    of_logs = torch.stack([weights * logs, weights * logs.square()], dim=-1).sum(dim=1)
    moments = torch.cat([total, faded[:, 1:3] + of_logs, total_norm], dim=1)
    mean, _ = mean_and_variance(moments)

    old, old_since, old_reports = (part.gather(1, slots) for part in state[:3])
    known, new = old.double(), logs - mean
    terms = [torch.ones_like(new), known, new, known.square(), known * new, new.square()]
    products = weights.unsqueeze(-1) * torch.stack(terms, dim=-1)
    buckets = _buckets(old_reports, state.updates - old_since)
    all_buckets = torch.arange(REPORTS * AGES, device=slots.device).view(1, -1, 1)
    is_in_bucket = (buckets.unsqueeze(1) == all_buckets).double()
    sums = keep_sums * state.sums + torch.bmm(is_in_bucket, products)

    last, is_any_observed = last_position(slots, is_observed)
    gain = (1 / (old_reports.double() + 1)).clamp(min=LEAST_GAIN)
    learned = known + gain * (new.gather(1, last) - known)
    deviations = torch.where(is_any_observed, learned.float(), old)
    since = torch.where(is_any_observed, state.updates.int(), old_since)
    reports = torch.where(is_any_observed, (old_reports + 1).clamp(max=MOST_REPORTS), old_reports)
    intercepts, slopes = lines(moments, sums)
    own = _buckets(reports, (state.updates - since).clamp(min=next_look(size, slots.shape[1], horizon)))
    expected = intercepts.gather(1, own) + slopes.gather(1, own) * deviations.double()
    return moments, sums, deviations, since, reports, mass_of(expected)


def lines(
    moments: Float[Tensor, "p 4"], sums: Float[Tensor, "p buckets 6"]
) -> tuple[Float[Tensor, "p buckets"], Float[Tensor, "p buckets"]]:
    """Log E[d] as a function of the running mean, per bucket: the intercept, and the slope within [0, 1].

    It is the regression of new deviations on running means, plus the mean of log d and half of the residual variance.
    The prior is a number of pairs that show no relation.
    """
    mean, variance = mean_and_variance(moments)
    total = sums[..., 0] + PRIOR_PAIRS
    known, new = sums[..., 1] / total, sums[..., 2] / total
    prior = PRIOR_PAIRS * variance.clamp(min=1e-12)
    known_variance = (sums[..., 3] + prior) / total - known.square()
    covariance = sums[..., 4] / total - known * new
    new_variance = (sums[..., 5] + prior) / total - new.square()
    slopes = (covariance / known_variance.clamp(min=1e-300)).clamp(0, 1)
    residual = new_variance - 2 * slopes * covariance + slopes.square() * known_variance
    return mean + new - slopes * known + 0.5 * residual.clamp(min=0), slopes


@fused
def forecast(
    deviations: Float[Tensor, "p N"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets 6"],
    updates: Int[Tensor, "1"],
) -> Float[Tensor, "p N"]:
    """The masses √E[d] of all slots at their current ages."""
    intercepts, slopes = lines(moments, sums)
    own = _buckets(reports, updates - since)
    return mass_of(intercepts.gather(1, own) + slopes.gather(1, own) * deviations.double())


@fused
def _prior_mass(
    moments: Float[Tensor, "p 4"], sums: Float[Tensor, "p buckets 6"], horizon: int
) -> Float[Tensor, "p 1"]:
    """√E[d] of a slot that was just written."""
    intercepts, _ = lines(moments, sums)
    bucket = min(horizon.bit_length() - 1, AGES - 1)
    return mass_of(intercepts[:, bucket : bucket + 1])


def _buckets(reports: Int[Tensor, "p B"], ages: Int[Tensor, "p B"]) -> Int[Tensor, "p B"]:
    """Number of the bucket by reports and age."""
    by_reports = torch.where(reports > 0, bucket_of(reports.long()) + 1, 0).clamp(max=REPORTS - 1)
    return by_reports * AGES + bucket_of(ages)
