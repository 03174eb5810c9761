"""The five measures and the statistics, by hand and against rliable."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from aes_rl.report import statistics
from aes_rl.report.measures import Measures, best_of, centred, measure, smooth

STEPS = np.arange(1, 11) * 100


def test_trailing_mean_by_hand() -> None:
    assert smooth(np.array([[2.0, 4.0, 9.0, 1.0]]), 2).tolist() == [[2.0, 3.0, 6.5, 5.0]]
    assert smooth(np.array([3.0, 5.0]), 10).tolist() == [3.0, 4.0]
    assert smooth(np.array([0.1, 0.7, 1000.0, 1000.0, 1000.0]), 3)[-1] == 1000.0  # no rounding left from before


def test_the_centred_mean_of_figures_does_not_shift_a_rising_curve() -> None:
    line = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert centred(line, 4).tolist() == [0.0, 1.0, 2.0, 3.0, 3.5, 4.0]  # at the end, scores after the point are missing
    assert centred(line[None], 1).tolist() == [line.tolist()]
    assert centred(np.array([7.0]), 10).tolist() == [7.0]


def test_one_evaluation_has_no_course_and_one_seed_no_spread() -> None:
    found = measure(STEPS[:1], np.array([[3.0], [5.0]]), window=10)
    assert found.final_performance == 4.0
    assert found.robustness == pytest.approx(np.sqrt(2))
    assert np.isnan([found.learning_speed, found.learning_stability, found.max_score]).all()
    alone = measure(STEPS, np.arange(10.0)[None], window=1)
    assert np.isnan(alone.robustness)
    assert alone.max_score == 9.0
    assert best_of({"a": alone, "b": alone}, "robustness") == set(), "nothing is best among missing values"


def test_an_interval_needs_two_runs() -> None:
    one = statistics.with_interval(statistics.interquartile_mean, np.array([[1.0, 2.0]]))
    assert one.value == 1.5
    assert not one.has_ends
    assert statistics.with_interval(statistics.interquartile_mean, np.array([[1.0], [2.0]])).has_ends


def test_measures_by_hand() -> None:
    """The peak of the early 40 % does not count, and of equal peaks the first does."""
    one = np.array([0, 99, 0, 0, 2, 8, 8, 4, 6, 4.0])
    other = np.array([0, 99, 0, 0, 4, 8, 8, 8, 4, 8.0])
    found = measure(STEPS, np.stack([one, other]), window=1)
    spread = np.mean([np.sqrt(2.0), np.sqrt(8.0)])  # of (6, 4) and (4, 8), ddof 1
    expected = Measures(8 / 600, 6 / 8, 8.0, float(spread), 6.0)
    assert found == pytest.approx(expected)


def test_measures_are_of_the_seed_mean() -> None:
    """The mean curve's peak, not the mean of the seeds' peaks."""
    scores = np.array([[0, 0, 0, 0, 0, 10, 0, 0, 0, 0.0], [0, 0, 0, 0, 0, 0, 0, 10, 0, 0.0]])
    assert measure(STEPS, scores, window=1).max_score == 5.0


def test_negative_scores_turn_stability_round() -> None:
    scores = np.array([[-9, -9, -9, -9, -9, -4, -4, -5, -5, -5.0]])
    found = measure(STEPS, scores, window=1)
    assert found.max_score == -4.0
    assert found.learning_stability == pytest.approx(4 / 5)
    assert found.learning_speed == pytest.approx(-4 / 600)
    assert np.isnan(found.robustness), "one seed has no spread"
    found = found._replace(robustness=1.0)
    values = {"a": found, "b": found._replace(learning_speed=-1.0, max_score=-3.0, robustness=2.0)}
    assert best_of(values, "learning_speed") == set()
    assert best_of(values, "max_score") == {"b"}
    assert best_of(values, "robustness") == {"a"}
    assert best_of(values, "final_performance") == {"a", "b"}


def test_statistics_by_hand() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0], [3.0, 13.0]])
    assert statistics.interquartile_mean(scores) == pytest.approx((2 + 3 + 10 + 11) / 4)
    assert statistics.performance_profile(scores, np.array([2.0, 10.5])).tolist() == [5 / 8, 3 / 8]
    assert statistics.probability_of_improvement(scores[:1], scores) == pytest.approx(0.5 / 4)
    assert statistics.probability_of_improvement(scores[3:], scores) == pytest.approx(3.5 / 4)


@pytest.mark.filterwarnings("ignore")  # of rliable's own dependencies
@pytest.mark.parametrize("seed", range(3))
def test_aggregates_agree_with_rliable(seed) -> None:
    from rliable import library, metrics

    generator = np.random.default_rng(seed)
    one, other = generator.lognormal(size=(7, 5)), generator.lognormal(0.2, size=(6, 5)).round(1)
    assert statistics.interquartile_mean(one) == pytest.approx(metrics.aggregate_iqm(one))
    expected = metrics.probability_of_improvement(one, other)
    assert statistics.probability_of_improvement(one, other) == pytest.approx(float(expected))
    thresholds = np.linspace(0, 3, 17)
    profile = [library.run_score_deviation(one, threshold) for threshold in thresholds]
    assert statistics.performance_profile(one, thresholds) == pytest.approx(profile)
    _, intervals = library.get_interval_estimates(
        {"x": one}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=4000, random_state=np.random.RandomState(seed)
    )
    low, high = statistics.bootstrap(statistics.interquartile_mean, one, repetitions=4000)
    width = float(intervals["x"][1, 0] - intervals["x"][0, 0])
    assert abs(low - intervals["x"][0, 0]) < 0.08 * width
    assert abs(high - intervals["x"][1, 0]) < 0.08 * width


def test_bootstrap_keeps_tasks_apart() -> None:
    """Tasks without spread leave no uncertainty, however much they differ."""
    scores = np.tile([0.0, 5.0, 100.0], (4, 1))
    low, high = statistics.bootstrap(statistics.interquartile_mean, scores, repetitions=50)
    assert low == high == statistics.interquartile_mean(scores)


def test_permutations_of_five_and_five_are_counted() -> None:
    low, high = np.arange(5.0), np.arange(5.0) + 10
    assert statistics.permutation_test(high, low) == statistics.permutation_test(low, high) == 2 / 252
    assert statistics.permutation_test(np.ones(5), np.ones(5)) == 1
    one, other = np.random.default_rng(0).normal(size=(2, 5))
    expected = scipy.stats.mannwhitneyu(one, other, method="exact").pvalue
    assert statistics.permutation_test(one, other) == pytest.approx(expected)


def test_many_permutations_are_drawn() -> None:
    generator = np.random.default_rng(1)
    one, other = generator.normal(0.7, 1, 20), generator.normal(0, 1, 20)
    expected = scipy.stats.mannwhitneyu(one, other, method="exact").pvalue
    assert 0.005 < expected < 0.5
    assert statistics.permutation_test(one, other) == pytest.approx(expected, abs=0.01)


def test_the_pooled_test_is_what_counting_all_ways_gives() -> None:
    """Two tasks with three runs a side: twenty ways each, four hundred together."""
    generator = np.random.default_rng(3)
    pairs = [(generator.normal(1.5, 1, 3), generator.normal(0, 1, 3)) for _ in range(2)]

    def wins(ours, theirs) -> float:
        return statistics.probability_of_improvement(np.array(ours)[:, None], np.array(theirs)[:, None]) - 0.5

    by_chance = []
    for first, second in pairs:
        runs = [*first, *second]
        ways = list(combinations(range(6), 3))
        by_chance.append([wins([runs[i] for i in way], [runs[i] for i in range(6) if i not in way]) for way in ways])
    observed = abs(sum(wins(*pair) for pair in pairs))
    expected = np.mean([abs(a + b) >= observed - 1e-9 for a in by_chance[0] for b in by_chance[1]])
    assert 0.01 < expected < 0.9
    assert statistics.pooled_permutation_test(pairs) == pytest.approx(expected)
    assert statistics.pooled_permutation_test([pair[::-1] for pair in pairs]) == pytest.approx(expected)
    assert np.isnan(statistics.pooled_permutation_test([*pairs, (np.array([np.nan]), np.ones(1))]))


def test_wins_and_ties_of_many_runs_are_counted_as_pair_by_pair() -> None:
    one, other = np.random.default_rng(5).integers(0, 20, (2, 60, 3)).astype(float)
    pairs = (one[:, None] > other[None]) + 0.5 * (one[:, None] == other[None])
    assert statistics.probability_of_improvement(one, other) == pairs.mean()
    (observed, *_) = statistics._permuted_improvements(one[:, 0], other[:, 0], repetitions=2500)
    assert observed == pairs[..., 0].mean() - 0.5


def test_a_test_of_many_runs_takes_little_memory() -> None:
    one, other = np.random.default_rng(6).normal(size=(2, 500))
    tracemalloc.start()
    statistics.permutation_test(one, other, repetitions=10_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


def test_the_pooled_test_of_many_seeds_needs_little_memory(monkeypatch) -> None:
    """Where the sums over tasks are too many to list, random ones are drawn: nearly the same p-value."""
    generator = np.random.default_rng(3)
    pairs = [(generator.normal(size=10) + 0.4, generator.normal(size=10)) for _ in range(3)]
    listed = statistics.pooled_permutation_test(pairs)
    monkeypatch.setattr(statistics, "_MOST_SUMS", 1)
    assert statistics.pooled_permutation_test(pairs) == pytest.approx(listed, abs=0.01)
    small = [(generator.normal(size=3), generator.normal(size=3)) for _ in range(2)]
    drawn = statistics.pooled_permutation_test(small)
    monkeypatch.setattr(statistics, "_MOST_SUMS", 10**9)
    assert drawn == pytest.approx(statistics.pooled_permutation_test(small), abs=0.02)
