"""The comparison that results/small-batches/PLAN.md states in advance. Templates call these functions by name."""

import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from aes_rl import paper
from aes_rl.report.curves import Array
from aes_rl.report.statistics import Interval, pooled_permutation_test, probability_of_improvement, with_interval
from scripts import network_draws, svg
from scripts.results_pages import data
from scripts.results_pages.tables import fraction, p_value, score, table, with_ends

BEST = "predictive:networks=separate,forecast=deviation"
SEEDS = tuple(range(101, 111))
LEAST_DIFFERENCE = -0.05
"""H256 holds if the whole interval of the difference of normalised scores lies above."""
_REPETITIONS = 10_000
SIZES = (16, 64, 256)
RARE = 8
"""Steps per update where updates are rare."""
COMPARED = {
    "uniform": ("uniform replay", "#777777", "none"),
    "predictive": ("predictive, one draw", svg.COLOURS["predictive"], "4 4"),
    BEST: ("predictive, a draw for each network", svg.COLOURS["predictive"], "none"),
}
"""The samplers of every cell: name in tables and figures, colour, dashes."""


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
        Side(BEST, 64, RARE), Side("uniform", 64, RARE), ("HalfCheetah", "Hopper", "Walker2d", "Ant"),
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


def curves(task: str, side: Side) -> Array:
    """Test returns [seeds, evaluations] of the plan's seeds; empty if they are not all there."""
    by_seed = _curves().get((task, side), {})
    if not set(SEEDS) <= set(by_seed):
        return np.empty((0, 0))
    return np.array([[score for _, score in sorted(by_seed[seed].items())] for seed in SEEDS])


def returns(task: str, side: Side) -> Array:
    """Mean test return during training of the plan's seeds; empty if they are not all there."""
    found = curves(task, side)
    return found.mean(axis=1) if len(found) else np.empty(0)


def _normalised(task: str, side: Side) -> Array:
    """The same where 0 is the mean first evaluation of all runs of the task, and 1 uniform replay at a batch of 256."""
    lowest, highest = _first_score(task), returns(task, Side("uniform", 256)).mean()
    scores: Array = (returns(task, side) - lowest) / (highest - lowest)
    return scores


def _first_score(task: str) -> float:
    """The mean first evaluation of all runs of a task."""
    runs = [one for (own, _), by_seed in _curves().items() if own == task for one in by_seed.values()]
    return float(np.mean([scores[min(scores)] for scores in runs]))


class Answer(NamedTuple):
    """What the runs say about a hypothesis so far."""

    tasks: list[str]
    """Tasks of which both sides have all runs."""
    interval: Interval
    p: float

    def holds(self, hypothesis: Hypothesis) -> bool:
        """Whether the whole interval lies where the hypothesis puts it."""
        return self.interval.low > (LEAST_DIFFERENCE if hypothesis.is_difference else 0.5)

    def verdict(self, hypothesis: Hypothesis) -> str:
        """Yes or no where all tasks are there."""
        if len(self.tasks) < len(hypothesis.tasks):
            return f"open: {len(self.tasks)} of {len(hypothesis.tasks)} tasks"
        return "**confirmed**" if self.holds(hypothesis) else "**not confirmed**"


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


def is_confirmed_so_far(name: str) -> bool:
    """Whether a hypothesis holds over the tasks that are complete."""
    hypothesis = next(one for one in HYPOTHESES if one.name == name)
    found = answer(hypothesis)
    return found is not None and found.holds(hypothesis)


def improvement(size: int, sampler: str = BEST, steps_per_round: int = 1, over: str = "uniform") -> str:
    """Probability that a run of the sampler beats one of another with the same batch, on its complete tasks."""
    return with_ends(_improvement(size, sampler, steps_per_round, over))


def draws_differ(size: int) -> bool:
    """Whether separate draws are significantly better or worse than a single one."""
    found = _improvement(size, BEST, 1, "predictive")
    return not found.low <= 0.5 <= found.high


def _improvement(size: int, sampler: str, steps_per_round: int, other: str) -> Interval:
    ours, theirs = (
        np.stack([returns(task, Side(s, size, steps_per_round)) for task in _done([size], steps_per_round)], axis=1)
        for s in (sampler, other)
    )
    return with_interval(probability_of_improvement, ours, theirs, repetitions=_REPETITIONS)


def improvement_on(task: str, size: int, sampler: str = BEST, steps_per_round: int = 1) -> str:
    """The same over uniform replay on one task."""
    return with_ends(_improvement_on(task, size, sampler, steps_per_round))


def _improvement_on(task: str, size: int, sampler: str, steps_per_round: int) -> Interval:
    ours, theirs = (returns(task, Side(s, size, steps_per_round))[:, None] for s in (sampler, "uniform"))
    return with_interval(probability_of_improvement, ours, theirs, repetitions=_REPETITIONS)


def improves_on(task: str, size: int, sampler: str = BEST, steps_per_round: int = 1) -> int:
    """1 if the whole interval lies above one half, -1 if it lies below, otherwise 0."""
    found = _improvement_on(task, size, sampler, steps_per_round)
    return int(found.low > 0.5) - int(found.high < 0.5)


def improvements_by_task() -> str:
    """Every task that has run, by batch size and number of draws."""
    cells = [(size, sampler) for size in (64, 16) for sampler in (BEST, "predictive")]
    lines = [
        [task, *(improvement_on(task, size, s) if task in tasks_done(size) else "–" for size, s in cells)]
        for task in paper.TASKS
        if task in tasks_done(16) or task in tasks_done(64)
    ]
    head = ["task", "64, separate draws", "64, one draw", "16, separate draws", "16, one draw"]
    return table(head, lines)


def tasks_done(*sizes: int) -> list[str]:
    """Tasks with all runs of some batch sizes, by default of 16 and 64."""
    return _done(sizes or (16, 64), 1)


def tasks_with_rare_updates() -> list[str]:
    """Tasks with all runs of a batch of 64 and an update every eight steps."""
    return _done([64], RARE)


def captured_with_rare_updates(network: str, sampler: str = BEST) -> str:
    """Lowest and highest mean captured fraction of a network's gradient in the second half of training, by task."""
    means = [
        float(np.mean([*network_draws.long_readings(cell, sampler, network).values()]))
        for cell in network_draws.long_cells(RARE)
        if paper.name_of(cell.task) in tasks_with_rare_updates()
    ]
    return f"{fraction(min(means))} to {fraction(max(means))}"


def _done(sizes: Sequence[int], steps_per_round: int) -> list[str]:
    sides = [Side(sampler, size, steps_per_round) for sampler in COMPARED for size in sizes]
    return [task for task in paper.TASKS if all(len(returns(task, side)) for side in sides)]


def tasks_in_words(*sizes: int) -> str:
    """These tasks as part of a sentence."""
    *first, last = tasks_done(*sizes)
    return f"{', '.join(first)} and {last}"


def fresh_scores() -> str:
    """Mean return during training of the complete cells, with its standard deviation over seeds."""
    cells = {(task, f"{size}"): [Side(sampler, size) for sampler in COMPARED] for task in paper.TASKS for size in SIZES}
    rare = {
        (task, f"64, an update every {RARE} steps"): [Side(sampler, 64, RARE) for sampler in COMPARED]
        for task in paper.TASKS
    }
    lines = []
    for (task, batch), sides in (cells | rare).items():
        own = [returns(task, side) for side in sides]
        if all(len(one) for one in own):
            lines.append([task, batch, *(f"{score(one.mean())} ± {score(one.std(ddof=1))}" for one in own)])
    return table(["task", "batch size", *(name for name, _, _ in COMPARED.values())], lines)


def batch_figure() -> str:
    """Mean return during training against the batch size, with its standard error; a panel per complete task."""
    top, height, width, gap, columns, footer = 80.0, 160.0, 128.0, 24.0, 3, 44.0
    elements = []
    for number, (name, colour, dashes) in enumerate(COMPARED.values()):
        y = 22.0 + 20 * number
        elements += [svg.path([(24, y), (56, y)], colour, 2.5, dashes), svg.text(64, y + 4.5, name)]
    for number, task in enumerate(tasks_done()):
        left = 24 + (width + gap) * (number % columns)
        bottom = top + height + (height + footer) * (number // columns)
        elements += _panel(task, left, bottom, width, height - 40)
    rows = -(-len(tasks_done()) // columns)
    total = int(top + rows * (height + footer))
    elements.append(svg.text(24 + (width + gap) * 1.5 - gap / 2, total - 4, "batch size", "middle"))
    return svg.page(480, total + 8, "Mean return during training against the batch size", elements)


def _panel(task: str, left: float, bottom: float, width: float, height: float) -> list[str]:
    found = {
        sampler: {size: own for size in SIZES if len(own := returns(task, Side(sampler, size)))} for sampler in COMPARED
    }
    at_64 = [score(found[sampler][64].mean()) for sampler in ("uniform", BEST)]
    highest = max(own.mean() for by_size in found.values() for own in by_size.values())
    lowest = 0.0 if highest > 0 else _first_score(task)
    scale = height / (1.1 * (highest - lowest))
    elements = [
        svg.text(left + width / 2, bottom - height - 24, task, "middle", style='font-weight="600"'),
        svg.text(left + width / 2, bottom - height - 8, f"{at_64[0]} → {at_64[1]} at 64", "middle"),
        svg.line(left, bottom, left + width, bottom),
    ]
    across = {size: left + 24 + place * (width - 48) / 2 for place, size in enumerate(SIZES)}
    elements += [svg.text(x, bottom + 18, str(size), "middle") for size, x in across.items()]
    for shift, (sampler, (_, colour, dashes)) in zip((-3, 0, 3), COMPARED.items(), strict=True):
        points = []
        for size, own in found[sampler].items():
            x, y = across[size] + shift, bottom - scale * (own.mean() - lowest)
            error = scale * own.std(ddof=1) / len(own) ** 0.5
            points.append((x, y))
            elements += [svg.line(x, y - error, x, y + error, colour, 1.5), svg.dot(x, y, colour, 3.5)]
        elements.append(svg.path(points, colour, 2.5, dashes))
    return elements


def hypotheses_table() -> str:
    """Every hypothesis with its number, interval, p-value and verdict."""
    lines = []
    for hypothesis in HYPOTHESES:
        found = answer(hypothesis)
        if found is None:
            lines.append([hypothesis.name, hypothesis.words, "–", "–", f"open: 0 of {len(hypothesis.tasks)} tasks"])
        else:
            number = with_ends(found.interval)
            lines.append([hypothesis.name, hypothesis.words, number, p_value(found.p), found.verdict(hypothesis)])
    return table(["", "hypothesis", "number (95 % interval)", "p", "verdict"], lines)
