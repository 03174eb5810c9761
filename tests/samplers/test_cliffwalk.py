"""Blind Cliffwalk: large steps with the weights of a sampler."""

import statistics

import numpy as np

from aes_rl import Predictive, Prioritized, Uniform
from benchmarks.cliffwalk import transitions, updates_needed


def median(config) -> float:
    return statistics.median(updates_needed(config, 8, 0.25, seed, most=4000) for seed in range(15))


def test_the_buffer_holds_one_reward() -> None:
    """All sequences up to their first mistake: 2^(n+1) − 2 transitions, of which one is paid."""
    states, _, rewards, ends, _, _ = transitions(8, np.random.default_rng(0))
    assert len(states) == 2**9 - 2
    assert rewards.sum() == 1
    assert ends[rewards == 1].all()


def test_predictive_selection_does_not_overshoot() -> None:
    """Weights of 1/κ from the first updates on: the values diverge, or take several times as long."""
    base = median(Uniform())
    assert median(Prioritized()) <= base / 2
    assert median(Predictive()) <= 1.2 * base
