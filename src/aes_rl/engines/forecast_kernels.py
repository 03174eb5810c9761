"""The loop of forecasts (S15), compiled for the CPU; see `forecasts` for what it computes."""

import numpy as np
from numba import njit

from aes_rl.engines.forecasts import AGES, MOST_LOG, PRIOR_DRAWS


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
    slope = pairs[bucket, 0] / (pairs[bucket, 1] + prior)
    return min(max(slope, 0.0), 1.0)


@njit(cache=True)
def _mean_and_variance(moments):
    total = max(moments[0], 1e-300)
    mean = moments[1] / total
    return mean, max(moments[2] / total - mean * mean, 0.0)


@njit(cache=True)
def _mass(half_log):
    return np.exp(min(max(half_log, -MOST_LOG), MOST_LOG))


@njit(cache=True)
def forget(seen, moments, slots, masses):
    """Know nothing of some slots, and the masses that they have then."""
    for member in range(slots.shape[0]):
        mean, variance = _mean_and_variance(moments[member])
        for k in range(slots.shape[1]):
            seen[member, np.uint64(slots[member, k])] = 0
            masses[member, k] = _mass(0.5 * (mean + 0.5 * variance))


@njit(cache=True)
def observe(logs, seen, moments, pairs, updates, slots, probabilities, size, squared_norms, keep, horizon, masses):
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
        mean, variance = _mean_and_variance(moments[member])
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
                slope = _slope(pairs[member], _bucket(max(now - seen[member, slot], horizon)), variance)
            masses[member, position] = _mass(0.5 * (mean + slope * (log - mean) + 0.5 * variance * (1 - slope * slope)))


@njit(cache=True)
def forecast(logs, seen, moments, pairs, updates, masses):
    """The masses of all slots: two numbers for every age, and one exponential a slot."""
    for member in range(logs.shape[0]):
        mean, variance = _mean_and_variance(moments[member])
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
                bucket = _bucket(updates[0] - seen[member, slot])
                masses[member, slot] = _mass(starts[bucket] + rises[bucket] * float(logs[member, slot]))
