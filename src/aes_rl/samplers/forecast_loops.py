"""Forecasts as compiled CPU loops; the reference implementation is in `forecast_equations`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.backends.numba.prefetch import prefetch
from aes_rl.samplers.forecast_equations import AGES, LARGEST_LOG, PRIOR_PAIRS
from aes_rl.types import Counter


def observe(
    logs: NDArray[np.float32],
    seen: NDArray[np.int32],
    moments: NDArray[np.float64],
    pairs: NDArray[np.float64],
    updates: NDArray[np.int64],
    slots: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    size: Counter,
    norms: NDArray[np.floating],
    is_current: NDArray[np.bool_],
    keep: float,
    horizon: int,
) -> NDArray[np.float64]:
    """Update the moments, the slopes and the drawn slots; return the masses of the drawn slots."""
    masses = np.empty(slots.shape)
    _observe(logs, seen, moments, pairs, updates, slots, probabilities, size, norms, is_current, keep, horizon, masses)
    return masses


def forget(seen: NDArray[np.int32], moments: NDArray[np.float64], slots: Tensor) -> NDArray[np.float64]:
    """Reset slots just written to unobserved; return their masses."""
    masses = np.empty(slots.shape)
    _forget(seen, moments, slots.numpy(), masses)
    return masses


def forecast(
    logs: NDArray[np.float32],
    seen: NDArray[np.int32],
    moments: NDArray[np.float64],
    pairs: NDArray[np.float64],
    updates: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The masses of all slots: two coefficients per age bucket, one exponential per slot."""
    masses = np.empty(logs.shape)
    _forecast(logs, seen, moments, pairs, updates, masses)
    return masses


@njit(cache=True, inline="always")
def bucket_of(age):
    """⌊log₂ age⌋, from the exponent of its floating-point form."""
    return min(max((np.float64(age).view(np.int64) >> 52) - 1023, 0), AGES - 1)


@njit(cache=True)
def _slope(pairs, bucket, variance):
    prior = PRIOR_PAIRS * max(variance, 1e-12)
    slope = pairs[bucket, 0] / (pairs[bucket, 1] + prior)
    return min(max(slope, 0.0), 1.0)


@njit(cache=True)
def mean_and_variance(moments):
    """Mean and variance of log d of one member; zero before the first observation."""
    total = max(moments[0], 1e-300)
    mean = moments[1] / total
    return mean, max(moments[2] / total - mean * mean, 0.0)


@njit(cache=True)
def _mass(half_log):
    return np.exp(min(max(half_log, -LARGEST_LOG), LARGEST_LOG))


@njit(cache=True)
def _forget(seen, moments, slots, masses):
    for member in range(slots.shape[0]):
        mean, variance = mean_and_variance(moments[member])
        for k in range(slots.shape[1]):
            seen[member, np.uint64(slots[member, k])] = 0
            masses[member, k] = _mass(0.5 * (mean + 0.5 * variance))


@njit(cache=True)
def _observe(logs, seen, moments, pairs, updates, slots, probabilities, size, norms, is_current, keep, horizon, masses):
    updates[0] += 1
    now = updates[0]
    batch = slots.shape[1]
    news, weights, slopes = np.empty(batch), np.empty(batch), np.empty(AGES)
    soon = max(1, min(horizon, size // batch))
    for member in range(slots.shape[0]):
        # Element by element: assigning slices takes two more seconds to compile.
        for moment in range(3):
            moments[member, moment] *= keep
        for bucket in range(AGES):
            pairs[member, bucket, 0] *= keep
            pairs[member, bucket, 1] *= keep
        for position in range(batch):
            slot = np.uint64(slots[member, position])
            prefetch(seen[member], slot)
            prefetch(logs[member], slot)
            norm = float(norms[member, position])
            weights[position] = 0.0
            if is_current[member, position] and norm > 0:
                weights[position] = weight = 1 / (size * probabilities[member, position])
                news[position] = new = np.log(norm)
                moments[member, 0] += weight
                moments[member, 1] += weight * new
                moments[member, 2] += weight * new * new
        mean, variance = mean_and_variance(moments[member])
        for position in range(batch):
            slot = np.uint64(slots[member, position])
            if weights[position] > 0 and seen[member, slot] > 0:
                old = float(logs[member, slot]) - mean
                bucket = bucket_of(now - seen[member, slot])
                pairs[member, bucket, 0] += weights[position] * old * (news[position] - mean)
                pairs[member, bucket, 1] += weights[position] * old * old
        for position in range(batch):
            if weights[position] > 0:
                slot = np.uint64(slots[member, position])
                logs[member, slot] = news[position]
                seen[member, slot] = now
        for bucket in range(AGES):
            slopes[bucket] = _slope(pairs[member], bucket, variance)
        for position in range(batch):
            slot = np.uint64(slots[member, position])
            log, slope = 0.0, 0.0
            if seen[member, slot] > 0:
                log = float(logs[member, slot])
                slope = slopes[bucket_of(max(now - seen[member, slot], soon))]
            masses[member, position] = _mass(0.5 * (mean + slope * (log - mean) + 0.5 * variance * (1 - slope * slope)))


@njit(cache=True)
def _forecast(logs, seen, moments, pairs, updates, masses):
    for member in range(logs.shape[0]):
        mean, variance = mean_and_variance(moments[member])
        unseen = _mass(0.5 * (mean + 0.5 * variance))
        starts, rises = np.empty(AGES), np.empty(AGES)
        for bucket in range(AGES):
            slope = _slope(pairs[member], bucket, variance)
            starts[bucket] = 0.5 * (mean * (1 - slope) + 0.5 * variance * (1 - slope * slope))
            rises[bucket] = 0.5 * slope
        for slot in range(logs.shape[1]):
            if seen[member, slot] == 0:
                masses[member, slot] = unseen
            else:
                bucket = bucket_of(updates[0] - seen[member, slot])
                masses[member, slot] = _mass(starts[bucket] + rises[bucket] * float(logs[member, slot]))
