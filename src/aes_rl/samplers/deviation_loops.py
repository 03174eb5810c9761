"""Forecasts of deviations as compiled CPU loops; the reference implementation is in `deviation_equations`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.backends.numba.prefetch import prefetch
from aes_rl.samplers.deviation_equations import (
    BUCKETS,
    LARGEST_NORM,
    LEAST_GAIN,
    LEAST_SHARE,
    MOST_REPORTS,
    REPORTS,
    SUMS_WITH_LAST,
)
from aes_rl.samplers.forecast_equations import AGES, LARGEST_LOG, PRIOR_PAIRS
from aes_rl.samplers.forecast_loops import bucket_of, mean_and_variance
from aes_rl.types import Counter

Floats = NDArray[np.float64]


def observe(
    deviations: NDArray[np.float32],
    last: NDArray[np.float32],
    since: NDArray[np.int32],
    reports: NDArray[np.uint8],
    moments: Floats,
    sums: Floats,
    updates: NDArray[np.int64],
    slots: NDArray[np.int64],
    probabilities: Floats,
    size: Counter,
    norms: NDArray[np.floating],
    is_current: NDArray[np.bool_],
    keep_moments: float,
    keep_sums: float,
    horizon: int,
) -> Floats:
    """Update the moments, the regressions and the drawn slots; return the masses of the drawn slots."""
    masses = np.empty(slots.shape)
    lines = np.empty((BUCKETS, 3))
    updates[0] += 1
    _observe(
        deviations, last, since, reports, moments, sums, updates[0], slots, probabilities, size, norms, is_current,
        keep_moments, keep_sums, horizon, lines, masses,
    )  # fmt: skip
    return masses


def forget(
    deviations: NDArray[np.float32],
    last: NDArray[np.float32],
    since: NDArray[np.int32],
    reports: NDArray[np.uint8],
    moments: Floats,
    sums: Floats,
    updates: NDArray[np.int64],
    slots: Tensor,
    horizon: int,
) -> Floats:
    """Reset slots just written to unreported; return their masses."""
    masses = np.empty(slots.shape)
    _forget(deviations, last, since, reports, moments, sums, updates[0], slots.numpy(), horizon, masses)
    return masses


def forecast(
    deviations: NDArray[np.float32],
    last: NDArray[np.float32],
    since: NDArray[np.int32],
    reports: NDArray[np.uint8],
    moments: Floats,
    sums: Floats,
    updates: NDArray[np.int64],
) -> Floats:
    """The masses of all slots: one line per bucket, one exponential per slot."""
    masses, lines = np.empty(deviations.shape), np.empty((BUCKETS, 3))
    _forecast(deviations, last, since, reports, moments, sums, updates[0], lines, masses)
    return masses


@njit(cache=True, inline="always")
def _bucket(reports, age):
    by_reports = 0
    if reports > 0:
        by_reports = min(bucket_of(reports) + 1, REPORTS - 1)
    return by_reports * AGES + bucket_of(age)


@njit(cache=True)
def _fit_one(sums, mean, variance, line):
    """Half of the intercept and half of both slopes, as the mass needs them."""
    total = sums[0] + PRIOR_PAIRS
    known, new = sums[1] / total, sums[2] / total
    prior = PRIOR_PAIRS * max(variance, 1e-12)
    known_variance = (sums[3] + prior) / total - known * known
    covariance = sums[4] / total - known * new
    new_variance = (sums[5] + prior) / total - new * new
    slope = min(max(covariance / max(known_variance, 1e-300), 0.0), 1.0)
    if len(sums) < SUMS_WITH_LAST:
        residual = max(new_variance - 2 * slope * covariance + slope * slope * known_variance, 0.0)
        line[0], line[1], line[2] = 0.5 * (mean + new - slope * known + 0.5 * residual), 0.5 * slope, 0.0
        return
    last = sums[6] / total
    last_variance = (sums[7] + prior) / total - last * last
    between = sums[8] / total - known * last
    last_covariance = sums[9] / total - last * new
    slope, last_slope = _two_slopes(known_variance, last_variance, between, covariance, last_covariance)
    residual = new_variance - 2 * (slope * covariance + last_slope * last_covariance)
    residual += slope * slope * known_variance + last_slope * last_slope * last_variance
    residual = max(residual + 2 * slope * last_slope * between, 0.0)
    line[0] = 0.5 * (mean + new - slope * known - last_slope * last + 0.5 * residual)
    line[1], line[2] = 0.5 * slope, 0.5 * last_slope


@njit(cache=True, inline="always")
def _two_slopes(known_variance, last_variance, between, covariance, last_covariance):
    """The slopes of the running mean and of the last deviation, each within [0, 1]."""
    determinant = max(known_variance * last_variance - between * between, 1e-300)
    slope = (covariance * last_variance - last_covariance * between) / determinant
    last_slope = (last_covariance * known_variance - covariance * between) / determinant
    if slope < 0 and last_slope >= 0:
        last_slope = last_covariance / max(last_variance, 1e-300)
    elif slope >= 0 and last_slope < 0:
        slope = covariance / max(known_variance, 1e-300)
    return min(max(slope, 0.0), 1.0), min(max(last_slope, 0.0), 1.0)


@njit(cache=True, inline="always")
def _fade(values, keep):
    for k in range(len(values)):  # a loop: an assignment to a slice takes seconds to compile
        values[k] *= keep


@njit(cache=True)
def _fit(sums, mean, variance, lines):
    for bucket in range(len(lines)):
        _fit_one(sums[bucket], mean, variance, lines[bucket])


@njit(cache=True, inline="always")
def _mass(line, deviation, last):
    return np.exp(min(max(line[0] + line[1] * deviation + line[2] * last, -LARGEST_LOG), LARGEST_LOG))


@njit(cache=True)
def _forget(deviations, last, since, reports, moments, sums, now, slots, horizon, masses):
    line = np.empty(3)
    for member in range(slots.shape[0]):
        mean, variance = mean_and_variance(moments[member])
        _fit_one(sums[member, bucket_of(horizon)], mean, variance, line)
        for k in range(slots.shape[1]):
            slot = np.uint64(slots[member, k])
            deviations[member, slot], since[member, slot], reports[member, slot] = 0.0, now, 0
            if last.shape[1]:
                last[member, slot] = 0.0
            masses[member, k] = _mass(line, 0.0, 0.0)


@njit(cache=True)
def _observe(
    deviations, last, since, reports, moments, sums, now, slots, probabilities, size, norms, is_current,
    keep_moments, keep_sums, horizon, lines, masses,
):  # fmt: skip
    batch = slots.shape[1]
    logs, weights = np.empty(batch), np.empty(batch)
    soon = max(1, min(horizon, size // batch))
    uses_last = last.shape[1] > 0
    for member in range(slots.shape[0]):
        _fade(moments[member], keep_moments)
        for bucket in range(sums.shape[1]):
            _fade(sums[member, bucket], keep_sums)
        for position in range(batch):
            slot = np.uint64(slots[member, position])
            prefetch(deviations[member], slot)
            if uses_last:
                prefetch(last[member], slot)
            prefetch(since[member], slot)
            prefetch(reports[member], slot)
            norm = float(norms[member, position])
            weights[position] = 0.0
            if is_current[member, position] and norm > 0:
                weights[position] = weight = 1 / (size * probabilities[member, position])
                logs[position] = norm = min(norm, LARGEST_NORM)
                moments[member, 0] += weight
                moments[member, 3] += weight * norm
        least = LEAST_SHARE * moments[member, 3] / max(moments[member, 0], 1e-300)
        for position in range(batch):
            if weights[position] > 0:
                logs[position] = log = np.log(max(logs[position], least))
                moments[member, 1] += weights[position] * log
                moments[member, 2] += weights[position] * log * log
        mean, variance = mean_and_variance(moments[member])
        for position in range(batch):
            weight = weights[position]
            if weight > 0:
                slot = np.uint64(slots[member, position])
                known, new = float(deviations[member, slot]), logs[position] - mean
                of_bucket = sums[member, _bucket(reports[member, slot], now - since[member, slot])]
                of_bucket[0] += weight
                of_bucket[1] += weight * known
                of_bucket[2] += weight * new
                of_bucket[3] += weight * known * known
                of_bucket[4] += weight * known * new
                of_bucket[5] += weight * new * new
                if uses_last:
                    before = float(last[member, slot])
                    of_bucket[6] += weight * before
                    of_bucket[7] += weight * before * before
                    of_bucket[8] += weight * known * before
                    of_bucket[9] += weight * before * new
        for position in range(batch - 1, -1, -1):  # backwards: of a slot drawn twice, the last norm is kept
            slot = np.uint64(slots[member, position])
            if weights[position] > 0 and since[member, slot] < now:
                known = float(deviations[member, slot])
                gain = max(1 / (reports[member, slot] + 1), LEAST_GAIN)
                deviations[member, slot] = known + gain * (logs[position] - mean - known)
                if uses_last:
                    last[member, slot] = logs[position] - mean
                since[member, slot] = now
                reports[member, slot] = min(reports[member, slot] + 1, MOST_REPORTS)
        _fit(sums[member], mean, variance, lines)
        for position in range(batch):
            slot = np.uint64(slots[member, position])
            bucket = _bucket(reports[member, slot], max(now - since[member, slot], soon))
            before = float(last[member, slot]) if uses_last else 0.0
            masses[member, position] = _mass(lines[bucket], float(deviations[member, slot]), before)


@njit(cache=True)
def _forecast(deviations, last, since, reports, moments, sums, now, lines, masses):
    for member in range(deviations.shape[0]):
        mean, variance = mean_and_variance(moments[member])
        _fit(sums[member], mean, variance, lines)
        for slot in range(deviations.shape[1]):
            bucket = _bucket(reports[member, slot], now - since[member, slot])
            before = float(last[member, slot]) if last.shape[1] else 0.0
            masses[member, slot] = _mass(lines[bucket], float(deviations[member, slot]), before)
