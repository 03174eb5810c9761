"""The comparison that results/small-batches/PLAN.md states in advance. Templates call these functions by name."""

import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from aes_rl import paper
from aes_rl.report.curves import Array
from aes_rl.report.statistics import Interval, pooled_permutation_test, probability_of_improvement, with_interval
from scripts.results_pages import data
from scripts.results_pages.tables import fraction, p_value, table

BEST = "predictive:networks=separate,forecast=deviation"
SEEDS = tuple(range(101, 111))
LEAST_DIFFERENCE = -0.05
"""H256 holds if the whole interval of the difference of normalised scores lies above."""
_REPETITIONS = 10_000


class Side(NamedTuple):
    """One of the two sides of a hypothesis."""

    sampler: str
    batch_size: int
    steps_per_round: int = 1


class Hypothesis(NamedTuple):
    """That the first side has a higher mean return during training, or is not much worse if `is_difference`."""

    name: str
    words: str
    first: Side
    second: Side
    tasks: Sequence[str]
    is_difference: bool = False


HYPOTHESES = (
    Hypothesis("H16", "the best rule beats uniform, 16", Side(BEST, 16), Side("uniform", 16), paper.TASKS),
    Hypothesis("H64", "the best rule beats uniform, 64", Side(BEST, 64), Side("uniform", 64), paper.TASKS),
    Hypothesis(
        "H256", "predictive, 64, is no worse than uniform, 256",
        Side("predictive", 64), Side("uniform", 256), paper.TASKS, is_difference=True,
    ),
    Hypothesis(
        "R64", "the best rule beats uniform, 64, an update every 8 steps",
        Side(BEST, 64, 8), Side("uniform", 64, 8), ("HalfCheetah", "Hopper", "Walker2d", "Ant"),
    ),
)  # fmt: skip


@cache
def _curves() -> dict[tuple[str, Side], dict[int, dict[int, float]]]:
    """Test returns of all committed runs by task, side, seed and step."""
    found: dict[tuple[str, Side], dict[int, dict[int, float]]] = {}
    for path in sorted((data.RESULTS / "small-batches").glob("*/config.json")):
        config = json.loads(path.read_text())
        task = paper.name_of(config["task"])
        for row in data.rows(path.with_name("evaluations.csv")):
            side = Side(row["sampler"], config["sac"]["batch_size"], config["steps_per_round"])
            seed, step = int(row["seed"]), int(row["env_step"])
            found.setdefault((task, side), {}).setdefault(seed, {})[step] = float(row["mean_return"])
    return found


def returns(task: str, side: Side) -> Array:
    """Mean test return during training of the plan's seeds; empty if they are not all there."""
    by_seed = _curves().get((task, side), {})
    if not set(SEEDS) <= set(by_seed):
        return np.empty(0)
    return np.array([np.mean(list(by_seed[seed].values())) for seed in SEEDS])


def _normalised(task: str, side: Side) -> Array:
    """The same where 0 is the mean first evaluation of all runs of the task, and 1 uniform replay at a batch of 256."""
    firsts = [scores[min(scores)] for (own, _), runs in _curves().items() if own == task for scores in runs.values()]
    lowest, highest = np.mean(firsts), returns(task, Side("uniform", 256)).mean()
    scores: Array = (returns(task, side) - lowest) / (highest - lowest)
    return scores


class Answer(NamedTuple):
    """What the runs say about a hypothesis so far."""

    tasks: list[str]
    """Tasks of which both sides have all runs."""
    interval: Interval
    p: float

    def verdict(self, hypothesis: Hypothesis) -> str:
        """Yes or no where all tasks are there."""
        if len(self.tasks) < len(hypothesis.tasks):
            return f"open: {len(self.tasks)} of {len(hypothesis.tasks)} tasks"
        is_true = self.interval.low > (LEAST_DIFFERENCE if hypothesis.is_difference else 0.5)
        return "**confirmed**" if is_true else "**not confirmed**"


def answer(hypothesis: Hypothesis) -> Answer | None:
    """The number, its interval and p-value over the tasks that are complete; None if there is none."""
    first, second = hypothesis.first, hypothesis.second
    done = [task for task in hypothesis.tasks if len(returns(task, first)) and len(returns(task, second))]
    if not done:
        return None
    of = _normalised if hypothesis.is_difference else returns
    ours, theirs = (np.stack([of(task, side) for task in done], axis=1) for side in (first, second))
    statistic = _difference if hypothesis.is_difference else probability_of_improvement
    interval = with_interval(statistic, ours, theirs, repetitions=_REPETITIONS)
    return Answer(done, interval, pooled_permutation_test(list(zip(ours.T, theirs.T, strict=True))))


def _difference(ours: Array, theirs: Array) -> float:
    return float(ours.mean() - theirs.mean())


def has_runs() -> bool:
    """Whether a hypothesis has a number yet."""
    return any(answer(hypothesis) for hypothesis in HYPOTHESES)


def hypotheses_table() -> str:
    """Every hypothesis with its number, interval, p-value and verdict."""
    lines = []
    for hypothesis in HYPOTHESES:
        found = answer(hypothesis)
        if found is None:
            lines.append([hypothesis.name, hypothesis.words, "–", "–", f"open: 0 of {len(hypothesis.tasks)} tasks"])
        else:
            ends = f"{fraction(found.interval.low)} to {fraction(found.interval.high)}"
            number = f"{fraction(found.interval.value)} ({ends})"
            lines.append([hypothesis.name, hypothesis.words, number, p_value(found.p), found.verdict(hypothesis)])
    return table(["", "hypothesis", "number (95 % interval)", "p", "verdict"], lines)
