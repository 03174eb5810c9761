"""The loop of forecasts (S15), compiled for the CPU; see `forecasts` for what it computes."""

import numpy as np
from numba import njit

from aes_rl.engines.forecasts import AGES, PRIOR_DRAWS, PRIOR_SLOPE


@njit(cache=True)
def _bucket(age):
    bucket = 0
    while age > 1 and bucket < AGES - 1:
        age >>= 1
        bucket += 1
    return bucket


@njit(cache=True)
def _slope(pairs, bucket, variance):
    prior = PRIOR_DRAWS * max(variance, 1e-12)
    slope = (pairs[bucket, 0] + PRIOR_SLOPE * prior) / (pairs[bucket, 1] + prior)
    return min(max(slope, 0.0), 1.0)


@njit(cache=True)
def observe(logs, seen, moments, pairs, updates, slots, probabilities, size, squared_norms, keep, masses):
    """Moments, then slopes, then the slots themselves, then the masses of the drawn ones."""
    updates[0] += 1
    now = updates[0]
    for member in range(slots.shape[0]):
        moments[member] *= keep
        pairs[member] *= keep
        for position in range(slots.shape[1]):
            norm = float(squared_norms[member, position])
            if norm > 0:
                weight = 1 / (size * probabilities[member, position])
                fresh = np.log(norm)
                moments[member, 0] += weight
                moments[member, 1] += weight * fresh
                moments[member, 2] += weight * fresh * fresh
        total = max(moments[member, 0], 1e-300)
        mean = moments[member, 1] / total
        variance = max(moments[member, 2] / total - mean * mean, 0.0)
        for position in range(slots.shape[1]):
            slot = np.uint64(slots[member, position])
            norm = float(squared_norms[member, position])
            if norm > 0 and seen[member, slot] > 0:
                weight = 1 / (size * probabilities[member, position])
                old = float(logs[member, slot]) - mean
                bucket = _bucket(now - seen[member, slot])
                pairs[member, bucket, 0] += weight * old * (np.log(norm) - mean)
                pairs[member, bucket, 1] += weight * old * old
        for position in range(slots.shape[1]):
            norm = float(squared_norms[member, position])
            if norm > 0:
                slot = np.uint64(slots[member, position])
                logs[member, slot] = np.log(norm)
                seen[member, slot] = now
        for position in range(slots.shape[1]):
            slot = np.uint64(slots[member, position])
            log, slope = 0.0, 0.0
            if seen[member, slot] > 0:
                log = float(logs[member, slot])
                slope = _slope(pairs[member], _bucket(now - seen[member, slot]), variance)
            masses[member, position] = np.exp(
                0.5 * (mean + slope * (log - mean) + 0.5 * variance * (1 - slope * slope))
            )
