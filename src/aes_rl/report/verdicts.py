"""Captured fraction and probability of improvement of every sampler, per cell and over all tasks."""

import csv
import math
from io import StringIO
from itertools import combinations
from typing import NamedTuple

import numpy as np

from aes_rl.report.curves import Array, common
from aes_rl.report.escaping import for_csv, number_for_csv
from aes_rl.report.load import BASELINE, Results
from aes_rl.report.measures import smooth
from aes_rl.report.statistics import (
    Interval,
    permutation_test,
    pooled_permutation_test,
    probability_of_improvement,
    with_interval,
)
from aes_rl.report.wording import counted

_LEVEL = 0.05
_FEWEST_SEEDS = 4
"""With fewer seeds, no difference can be significant at that level, even if one sampler always wins."""


class Verdict(NamedTuple):
    """One sampler in one cell, compared with uniform replay over the seeds that both have."""

    task: str
    agent: str
    sampler: str
    baseline: str
    """The runs of uniform replay compared with: `uniform`, with a directory's name if several were given."""
    seeds: int
    measured_seeds: int
    """Number of these seeds with variance readings."""
    captured: float
    """Captured fraction, mean over seeds and over the second half of training; nan if it was not measured."""
    captured_low: float
    captured_high: float
    """Lowest and highest mean of a seed."""
    by_network: dict[str, float]
    final: float
    """Final score: mean of the last evaluations, mean over seeds."""
    uniform_final: float
    final_improvement: Interval
    """Probability of improvement over uniform replay, by final score."""
    training_improvement: Interval
    """Probability of improvement by mean return during training, which varies less; nan if there is one evaluation."""
    final_p: float
    training_p: float
    """p-values of the two permutation tests."""

    def variance_in_words(self) -> str:
        """Whether the sampler reduced the variance, in words."""
        if self.measured_seeds == 0:
            return "not measured"
        if self.captured_low > 0:
            if self.measured_seeds < self.seeds:
                return f"lower on {self.measured_seeds} of {counted(self.seeds, 'seed')}, the others not measured"
            return "lower on every seed" if self.seeds > 1 else "lower on the one seed"
        return "lower on average" if self.captured > 0 else "not lower"

    def score_in_words(self) -> str:
        """Whether the final score differs significantly, in words."""
        return _in_words(self.final_improvement, self.final_p, self.seeds)

    def training_in_words(self) -> str:
        """Whether the mean return during training differs significantly, in words."""
        return _in_words(self.training_improvement, self.training_p, self.seeds)


def verdicts(results: Results, window: int) -> list[Verdict]:
    """One verdict per cell and sampler other than uniform replay."""
    made = []
    for task, agent, sampler in results.methods():
        cell = (task, agent, sampler)
        baseline = results.baseline_of(cell)
        if baseline is None:
            continue
        seeds, ours, theirs = _sides(results, *cell, baseline[2])
        if not seeds:
            continue
        ends, their_ends = _ends(ours, window), _ends(theirs, window)
        means, their_means = _means(ours), _means(theirs)
        has_course = ours.shape[1] > 1
        captured = _late(results, cell, seeds, "")
        networks = {network for *run, _, network in results.captured_by_network if tuple(run) == cell}
        by_network = {name: _late(results, cell, seeds, name) for name in sorted(networks)}
        has_any = len(captured) > 0
        made.append(
            Verdict(
                task, agent, sampler, baseline[2], len(seeds), len(captured),
                float(captured.mean()) if has_any else math.nan,
                float(captured.min()) if has_any else math.nan,
                float(captured.max()) if has_any else math.nan,
                {name: float(late.mean()) for name, late in by_network.items() if len(late)},
                float(ends.mean()),
                float(their_ends.mean()),
                with_interval(probability_of_improvement, ends[:, None], their_ends[:, None]),
                with_interval(probability_of_improvement, means[:, None], their_means[:, None])
                if has_course
                else Interval(math.nan, math.nan, math.nan),
                permutation_test(ends, their_ends),
                permutation_test(means, their_means) if has_course else math.nan,
            )
        )  # fmt: skip
    return made


class Together(NamedTuple):
    """Two samplers compared over all tasks that both have run."""

    agent: str
    sampler: str
    other: str
    tasks: int
    final_improvement: float
    """Probability of improvement of the first over the other by final score, mean over tasks."""
    final_p: float
    training_improvement: float
    training_p: float


def together(results: Results, window: int) -> list[Together]:
    """One comparison per agent and pair of samplers that share several tasks with more than one evaluation."""
    made = []
    methods = results.methods()
    for agent in dict.fromkeys(agent for _, agent, _ in methods):
        tasks = dict.fromkeys(task for task, one, _ in methods if one == agent)
        samplers = dict.fromkeys(sampler for _, one, sampler in methods if one == agent)
        for other, sampler in combinations(samplers, 2):
            sides = [_sides(results, task, agent, sampler, other) for task in tasks]
            shared = [(ours, theirs) for seeds, ours, theirs in sides if seeds and ours.shape[1] > 1]
            if len(shared) < 2:
                continue
            ends = [(_ends(ours, window), _ends(theirs, window)) for ours, theirs in shared]
            means = [(_means(ours), _means(theirs)) for ours, theirs in shared]
            made.append(Together(agent, sampler, other, len(shared), *_pooled(ends), *_pooled(means)))
    return made


TOGETHER_HEAD = [
    "agent", "sampler", "against", "tasks", "higher final score", "higher mean return during training",
]  # fmt: skip


def together_in_cells(made: list[Together]) -> list[list[str]]:
    """Table lines with the columns of `TOGETHER_HEAD`."""
    return [
        [
            one.agent.upper(), one.sampler, one.other, str(one.tasks),
            f"{one.final_improvement:.2f}, p {one.final_p:.3f}",
            f"{one.training_improvement:.2f}, p {one.training_p:.3f}",
        ]
        for one in made
    ]  # fmt: skip


HEAD = [
    "task", "agent", "sampler", "captured fraction", "by network", "gradient variance", "final ÷ uniform's",
    "higher final score", "higher mean return during training",
]  # fmt: skip


def in_cells(made: list[Verdict]) -> list[list[str]]:
    """Table lines with the columns of `HEAD`."""
    return [
        [
            one.task, one.agent.upper(), _sampler(one), _captured(one), _networks(one), one.variance_in_words(),
            _ratio(one),
            _comparison(one.final_improvement, one.final_p, one.score_in_words(), one.seeds),
            _comparison(one.training_improvement, one.training_p, one.training_in_words(), one.seeds),
        ]
        for one in made
    ]  # fmt: skip


def as_csv(made: list[Verdict]) -> str:
    """All numbers, unrounded."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    networks = sorted({name for one in made for name in one.by_network})
    writer.writerow(
        ["task", "agent", "sampler", "baseline", "seeds", "captured", "captured_low", "captured_high",
         *(f"captured_{name}" for name in networks), "final", "uniform_final",
         *(f"{kind}_improvement{end}" for kind in ("final", "training") for end in ("", "_low", "_high")),
         "final_p", "training_p"]
    )  # fmt: skip
    for one in made:
        by_network = (one.by_network.get(name, math.nan) for name in networks)
        numbers = (
            one.captured, one.captured_low, one.captured_high, *by_network, one.final, one.uniform_final,
            *one.final_improvement, *one.training_improvement, one.final_p, one.training_p,
        )  # fmt: skip
        names = (for_csv(one.task), one.agent, for_csv(one.sampler), for_csv(one.baseline))
        writer.writerow([*names, one.seeds, *map(number_for_csv, numbers)])
    return text.getvalue()


def together_as_csv(made: list[Together]) -> str:
    """The numbers, to six significant digits."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Together._fields)
    for agent, sampler, other, tasks, *numbers in made:
        writer.writerow([agent, for_csv(sampler), for_csv(other), tasks, *(f"{number:.6g}" for number in numbers)])
    return text.getvalue()


def _sides(results: Results, task: str, agent: str, sampler: str, other: str) -> tuple[list[int], Array, Array]:
    """The seeds that both samplers have, and both scores [seeds, evaluations] at the steps that all runs have."""
    own, theirs = results.seeds_of((task, agent, sampler)), results.seeds_of((task, agent, other))
    seeds = [seed for seed in own if seed in theirs]
    curves = [own[seed] for seed in seeds] + [theirs[seed] for seed in seeds]
    scores = common(curves)[1] if seeds else np.empty((0, 0))
    first, second = np.split(scores, 2)
    return seeds if scores.size else [], first, second


def _ends(scores: Array, window: int) -> Array:
    """Final score per seed."""
    return smooth(scores, window)[:, -1]


def _means(scores: Array) -> Array:
    """Mean return during training per seed."""
    means: Array = scores.mean(axis=1)
    return means


def _pooled(pairs: list[tuple[Array, Array]]) -> tuple[float, float]:
    each = [probability_of_improvement(ours[:, None], theirs[:, None]) for ours, theirs in pairs]
    return float(np.mean(each)), pooled_permutation_test(pairs)


def _late(results: Results, cell: tuple[str, str, str], seeds: list[int], network: str) -> Array:
    """Mean captured fraction in the second half of training per measured seed."""
    means = []
    for seed in seeds:
        run = (*cell, seed)
        readings = results.captured_by_network.get((*run, network)) if network else results.captured.get(run)
        points = readings or []
        late = [value for step, value in points if step > points[-1][0] / 2 and value == value]
        if late:
            means.append(np.mean(late))
    return np.array(means)


def _in_words(improvement: Interval, p: float, seeds: int) -> str:
    if math.isnan(improvement.value):
        return "one evaluation"
    if seeds < _FEWEST_SEEDS:
        return "too few seeds"
    if p > _LEVEL:
        return "no significant difference"
    return "higher" if improvement.value > 0.5 else "lower"


def _captured(one: Verdict) -> str:
    if np.isnan(one.captured):
        return "–"
    if one.measured_seeds == 1:
        return f"{one.captured:.2f} (one seed)"
    return f"{one.captured:.2f} ({one.captured_low:.2f} to {one.captured_high:.2f})"


def _networks(one: Verdict) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in one.by_network.items()) or "–"


def _ratio(one: Verdict) -> str:
    if one.uniform_final > 0:
        return f"{one.final / one.uniform_final:.2f}"
    return f"{one.final:.2f} : {one.uniform_final:.2f}"


def _sampler(one: Verdict) -> str:
    return one.sampler if one.baseline == BASELINE else f"{one.sampler} against {one.baseline}"


def _comparison(improvement: Interval, p: float, words: str, seeds: int) -> str:
    """A probability with its interval and its test. One seed on each side has neither."""
    if math.isnan(improvement.value) or seeds == 1:
        return f"– ({words})"
    return f"{improvement.value:.2f} ({improvement.low:.2f} to {improvement.high:.2f}), p {p:.2f}: {words}"
