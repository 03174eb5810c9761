"""Statistics for comparing methods: pure functions of scores [runs, tasks] (Agarwal et al., 2021)."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """An estimate with its 95 % bootstrap interval, whose ends are nan if there is one run only."""

    value: float
    low: float
    high: float

    @property
    def has_ends(self) -> bool:
        """Whether there is an interval around the value."""
        return not math.isnan(self.low)


def interquartile_mean(scores: Array) -> float:
    """Mean of the middle half of all scores. A quarter, rounded down, is removed at each end."""
    ordered = np.sort(scores, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Fraction of runs above each threshold."""
    shares: Array = (scores.reshape(-1, 1) > thresholds).mean(axis=0)
    return shares


def probability_of_improvement(scores: Array, others: Array) -> float:
    """Probability that a run of one method beats a run of the other on the same task, mean over tasks."""
    wins = 0.0
    for ours, theirs in zip(scores.T, np.sort(others, axis=0).T, strict=True):
        below_or_equal = np.searchsorted(theirs, ours, "right").sum()
        wins += (np.searchsorted(theirs, ours, "left").sum() + below_or_equal) / 2  # a tie is half a win
    return float(wins / (scores.size * len(others)))


def permutation_test(scores: Array, others: Array, repetitions: int = 20_000) -> float:
    """Two-sided p-value of the probability of improvement between two methods, by a permutation test.

    Exact if there are at most `repetitions` permutations, otherwise over random permutations. With five runs per method
    the bootstrap interval of the probability is too narrow; this test is valid for any number of runs.
    """
    return pooled_permutation_test([(scores, others)], repetitions)


_MOST_SUMS = 4_000_000
"""Sums of permuted statistics over tasks that are enumerated; for more of them, random ones are drawn."""


def pooled_permutation_test(pairs: Sequence[tuple[Array, Array]], repetitions: int = 20_000) -> float:
    """Permutation test of the mean over tasks. Labels are permuted within each task. nan if a score is nan."""
    if any(np.isnan(side).any() for pair in pairs for side in pair):
        return math.nan
    all_ways = [_permuted_improvements(scores, others, repetitions) for scores, others in pairs]
    observed = float(sum(ways[0] for ways in all_ways))
    sums: Array = np.zeros(1)
    counts: Array = np.ones(1)
    for ways in all_ways:
        values, how_often = np.unique(ways.round(9), return_counts=True)
        if len(sums) * len(values) > _MOST_SUMS:
            return _share_as_large(_drawn_jointly(all_ways, repetitions), observed)
        sums, where = np.unique((sums[:, None] + values).round(9), return_inverse=True)
        counts = np.bincount(where.ravel(), weights=np.outer(counts, how_often).ravel()).astype(np.float64)
    return float(counts[np.abs(sums) >= abs(observed) - 1e-6].sum() / counts.sum())


def _drawn_jointly(all_ways: list[Array], repetitions: int) -> Array:
    """Sums over tasks of randomly chosen values of each, the first of which is the observed one."""
    generator = np.random.default_rng(1)
    total: Array = np.zeros(repetitions)
    for ways in all_ways:
        total += np.concatenate([ways[:1], generator.choice(ways, repetitions - 1)])
    return total


def _share_as_large(sums: Array, observed: float) -> float:
    return float((np.abs(sums) >= abs(observed) - 1e-6).mean())


def _permuted_improvements(scores: Array, others: Array, repetitions: int) -> Array:
    """Probability of improvement minus ½ for every permutation. The first value is the observed one."""
    runs = np.concatenate([scores, others])
    count, total = len(scores), len(runs)
    ordered = np.sort(runs)
    # Ranks from 1, ties get their mean rank. The rank sum minus its minimum is the number of wins (Mann–Whitney U).
    ranks = (np.searchsorted(ordered, runs, "left") + np.searchsorted(ordered, runs, "right") + 1) / 2
    if math.comb(total, count) <= repetitions:
        sums = ranks[np.array(list(combinations(range(total), count)))].sum(axis=1)
    else:
        generator = np.random.default_rng(0)
        parts = [_drawn_sums(ranks, count, generator, part) for part in _parts(repetitions, 1_000)]
        sums = np.concatenate(parts)
        sums[0] = ranks[:count].sum()  # the observed labels are one permutation
    wins: Array = (sums - count * (count + 1) / 2) / (count * (total - count))
    return wins - 0.5


def _drawn_sums(ranks: Array, count: int, generator: np.random.Generator, repetitions: int) -> Array:
    """Sums of `count` ranks drawn without replacement, [repetitions]."""
    ours = np.argsort(generator.random((repetitions, len(ranks))), axis=1)[:, :count]
    sums: Array = ranks[ours].sum(axis=1)
    return sums


def _parts(total: int, size: int) -> list[int]:
    """Split a number into parts of at most `size`: all repetitions at once could need gigabytes."""
    return [min(size, total - start) for start in range(0, total, size)]


def bootstrap(
    statistic: Callable[..., float | Array], *matrices: Array, repetitions: int = 2000, seed: int = 0
) -> tuple[Array, Array]:
    """Lower and upper end of the 95 % bootstrap interval of a statistic of score matrices [runs, tasks].

    Stratified: runs are resampled within each task, independently for each matrix.
    """
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(repetitions):
        drawn = []
        for scores in matrices:
            rows = generator.integers(0, scores.shape[0], scores.shape[:2])
            drawn.append(np.take_along_axis(scores, rows.reshape(rows.shape + (1,) * (scores.ndim - 2)), axis=0))
        values.append(statistic(*drawn))
    low, high = np.percentile(np.array(values), [2.5, 97.5], axis=0)
    return low, high


def with_interval(statistic: Callable[..., float], *matrices: Array, repetitions: int = 2000) -> Interval:
    """A statistic and its bootstrap interval. One run per method has no spread to resample, and no interval."""
    if max(map(len, matrices)) < 2:
        return Interval(statistic(*matrices), math.nan, math.nan)
    low, high = bootstrap(statistic, *matrices, repetitions=repetitions)
    return Interval(statistic(*matrices), float(low), float(high))


def interquartile_mean_curve(scores: Array) -> Array:
    """Interquartile mean at every step of scores [runs, tasks, steps]."""
    return np.array([interquartile_mean(scores[..., step]) for step in range(scores.shape[-1])])
