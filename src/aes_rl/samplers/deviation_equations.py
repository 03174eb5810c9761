"""Forecasts of deviations as tensor operations: on a GPU, and as the reference for the compiled CPU loops.

All norms drift together as training goes on, faster than single slots change places. A slot's deviation is its log d
minus the mean of log d at the same moment, so that the common drift drops out. The deviation of the next report is
regressed on the running mean of the earlier ones, separately for slots with few and with many reports and for short
and long ages; with `uses_last`, on the last one, too. The equations are in docs/samplers/predictive.md.
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
BUCKETS = REPORTS * AGES
SUMS, SUMS_WITH_LAST = 6, 10
"""Number of weighted sums per bucket: of 1, z, y, z², z·y and y², where z is the running mean and y the new deviation;
and of l, l², z·l and l·y, where l is the last deviation."""


class State(NamedTuple):
    """The state of the forecasts, where d is a squared gradient norm."""

    deviations: Float[Tensor, "p N"]
    """Running mean of each slot's log d minus the mean of log d at that moment; 0 without reports."""
    last: Float[Tensor, "p M"]
    """The last of these differences; 0 without reports. M is 0 if it is not used."""
    since: Int[Tensor, "p N"]
    """The update of each slot's last report or, without reports, the last one before it was written."""
    reports: Int[Tensor, "p N"]
    """Number of reports on each slot since it was written."""
    moments: Float[Tensor, "p 4"]
    """Weighted sums of 1, log d, (log d)² and d; they fade fast."""
    sums: Float[Tensor, "p buckets sums"]
    """Sums of the regression per bucket of reports and age; they fade slowly."""
    updates: Int[Tensor, "1"]


def observe(
    deviations: Float[Tensor, "p N"],
    last: Float[Tensor, "p M"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets sums"],
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
    state = State(deviations, last, since, reports, moments, sums, updates)
    moments_now, sums_now, deviations_now, last_now, since_now, reports_now, masses = _observed(
        state, slots, probabilities, size, squared_norms, is_current, keep_moments, keep_sums, horizon
    )
    moments.copy_(moments_now)
    sums.copy_(sums_now)
    deviations.scatter_(1, slots, deviations_now)
    if uses_last(sums):
        last.scatter_(1, slots, last_now)
    since.scatter_(1, slots, since_now)
    reports.scatter_(1, slots, reports_now)
    return masses


def forget(
    deviations: Float[Tensor, "p N"],
    last: Float[Tensor, "p M"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets sums"],
    updates: Int[Tensor, "1"],
    slots: Int[Tensor, "p K"],
    horizon: int,
) -> Float[Tensor, "p K"]:
    """Mark slots that were just written as unreported; return their masses."""
    deviations.scatter_(1, slots, 0.0)
    if uses_last(sums):
        last.scatter_(1, slots, 0.0)
    since.scatter_(1, slots, updates.int().expand(slots.shape))
    reports.scatter_(1, slots, 0)
    return _prior_mass(moments, sums, horizon).expand(slots.shape).contiguous()


def uses_last(sums: Float[Tensor, "p buckets sums"]) -> bool:
    """Whether the regressions are on the last deviation, too."""
    return sums.shape[-1] == SUMS_WITH_LAST


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
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

    old, old_since, old_reports = (part.gather(1, slots) for part in (state.deviations, state.since, state.reports))
    known, new = old.double(), logs - mean
    terms = [torch.ones_like(new), known, new, known.square(), known * new, new.square()]
    old_last = state.last.gather(1, slots) if uses_last(state.sums) else torch.zeros_like(old)
    if uses_last(state.sums):
        before = old_last.double()
        terms += [before, before.square(), known * before, before * new]
    products = weights.unsqueeze(-1) * torch.stack(terms, dim=-1)
    buckets = _buckets(old_reports, state.updates - old_since)
    all_buckets = torch.arange(BUCKETS, device=slots.device).view(1, -1, 1)
    is_in_bucket = (buckets.unsqueeze(1) == all_buckets).double()
    sums = keep_sums * state.sums + torch.bmm(is_in_bucket, products)

    position, is_any_observed = last_position(slots, is_observed)
    newest = new.gather(1, position)
    gain = (1 / (old_reports.double() + 1)).clamp(min=LEAST_GAIN)
    learned = known + gain * (newest - known)
    deviations = torch.where(is_any_observed, learned.float(), old)
    last = torch.where(is_any_observed, newest.float(), old_last)
    since = torch.where(is_any_observed, state.updates.int(), old_since)
    reports = torch.where(is_any_observed, (old_reports + 1).clamp(max=MOST_REPORTS), old_reports)
    own = _buckets(reports, (state.updates - since).clamp(min=next_look(size, slots.shape[1], horizon)))
    masses = lines(moments, sums).masses(own, deviations, last)
    return moments, sums, deviations, last, since, reports, masses


class Lines(NamedTuple):
    """Log E[d] per bucket as a linear function of the running mean and, if it is used, of the last deviation."""

    intercepts: Float[Tensor, "p buckets"]
    slopes: Float[Tensor, "p buckets"]
    """Within [0, 1], as are those of the last deviation."""
    last_slopes: Float[Tensor, "p buckets"] | None

    def masses(
        self, buckets: Int[Tensor, "p B"], deviations: Float[Tensor, "p B"], last: Float[Tensor, "p B"]
    ) -> Float[Tensor, "p B"]:
        """√E[d] of slots in the given buckets."""
        expected = self.intercepts.gather(1, buckets) + self.slopes.gather(1, buckets) * deviations.double()
        if self.last_slopes is not None:
            expected = expected + self.last_slopes.gather(1, buckets) * last.double()
        return mass_of(expected)


def lines(moments: Float[Tensor, "p 4"], sums: Float[Tensor, "p buckets sums"]) -> Lines:
    """The regression of new deviations per bucket, plus the mean of log d and half of the residual variance.

    The prior is a number of pairs that show no relation. Of two slopes, a negative one is dropped and the other is
    fitted alone.
    """
    mean, variance = mean_and_variance(moments)
    total = sums[..., 0] + PRIOR_PAIRS
    known, new = sums[..., 1] / total, sums[..., 2] / total
    prior = PRIOR_PAIRS * variance.clamp(min=1e-12)
    known_variance = (sums[..., 3] + prior) / total - known.square()
    covariance = sums[..., 4] / total - known * new
    new_variance = (sums[..., 5] + prior) / total - new.square()
    if not uses_last(sums):
        slopes = (covariance / known_variance.clamp(min=1e-300)).clamp(0, 1)
        residual = new_variance - 2 * slopes * covariance + slopes.square() * known_variance
        return Lines(mean + new - slopes * known + 0.5 * residual.clamp(min=0), slopes, None)
    last = sums[..., 6] / total
    last_variance = (sums[..., 7] + prior) / total - last.square()
    between = sums[..., 8] / total - known * last
    last_covariance = sums[..., 9] / total - last * new
    slopes, last_slopes = _two_slopes(known_variance, last_variance, between, covariance, last_covariance)
    residual = new_variance - 2 * (slopes * covariance + last_slopes * last_covariance)
    residual = residual + slopes.square() * known_variance + last_slopes.square() * last_variance
    residual = residual + 2 * slopes * last_slopes * between
    intercepts = mean + new - slopes * known - last_slopes * last + 0.5 * residual.clamp(min=0)
    return Lines(intercepts, slopes, last_slopes)


def _two_slopes(
    known_variance: Tensor, last_variance: Tensor, between: Tensor, covariance: Tensor, last_covariance: Tensor
) -> tuple[Tensor, Tensor]:
    """The slopes of the running mean and of the last deviation, each within [0, 1], from the (co)variances."""
    determinant = (known_variance * last_variance - between.square()).clamp(min=1e-300)
    slopes = (covariance * last_variance - last_covariance * between) / determinant
    last_slopes = (last_covariance * known_variance - covariance * between) / determinant
    alone = covariance / known_variance.clamp(min=1e-300)
    last_alone = last_covariance / last_variance.clamp(min=1e-300)
    is_first_negative, is_last_negative = slopes < 0, last_slopes < 0
    return (
        torch.where(~is_first_negative & is_last_negative, alone, slopes).clamp(0, 1),
        torch.where(is_first_negative & ~is_last_negative, last_alone, last_slopes).clamp(0, 1),
    )


@fused
def forecast(
    deviations: Float[Tensor, "p N"],
    last: Float[Tensor, "p M"],
    since: Int[Tensor, "p N"],
    reports: Int[Tensor, "p N"],
    moments: Float[Tensor, "p 4"],
    sums: Float[Tensor, "p buckets sums"],
    updates: Int[Tensor, "1"],
) -> Float[Tensor, "p N"]:
    """The masses √E[d] of all slots at their current ages."""
    return lines(moments, sums).masses(_buckets(reports, updates - since), deviations, last)


@fused
def _prior_mass(
    moments: Float[Tensor, "p 4"], sums: Float[Tensor, "p buckets sums"], horizon: int
) -> Float[Tensor, "p 1"]:
    """√E[d] of a slot that was just written."""
    bucket = min(horizon.bit_length() - 1, AGES - 1)
    return mass_of(lines(moments, sums).intercepts[:, bucket : bucket + 1])


def _buckets(reports: Int[Tensor, "p B"], ages: Int[Tensor, "p B"]) -> Int[Tensor, "p B"]:
    """Number of the bucket by reports and age."""
    by_reports = torch.where(reports > 0, bucket_of(reports.long()) + 1, 0).clamp(max=REPORTS - 1)
    return by_reports * AGES + bucket_of(ages)
