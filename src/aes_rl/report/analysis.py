"""The numbers of a report: measures with the paper's values, and normalized scores aggregated over tasks."""

from typing import NamedTuple

import numpy as np

from aes_rl import paper
from aes_rl.report.curves import Array, Curve, common
from aes_rl.report.load import BASELINE, Results
from aes_rl.report.measures import Measures, centred, measure, smooth
from aes_rl.report.paper_table import PaperRow, paper_rows
from aes_rl.report.statistics import Interval, interquartile_mean, probability_of_improvement, with_interval

_FRACTIONS = np.linspace(0.02, 1, 50)
"""Points of the sample-efficiency curves, as fractions of each task's environment steps."""

_LEAST_RISE = 1e-9
"""Smallest improvement of uniform replay that scores are normalized by, as a fraction of the largest score."""


class Row(NamedTuple):
    """One method on one task with one agent."""

    task: str
    agent: str
    sampler: str
    source: str
    """Which of several given directories the runs are from; empty if one was given."""
    seeds: tuple[int, ...]
    steps: int
    measures: Measures
    untouched: Measures | None
    """Measures without the seed that AES was tuned on; None if that seed is missing or the only one."""
    paper: PaperRow | None
    is_comparable: bool
    """Whether the paper's row has the same horizon and no error."""


class Aggregate(NamedTuple):
    """All tasks of one agent, with scores normalized per task."""

    agent: str
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    finals: dict[str, Array]
    """[runs, tasks] by sampler."""
    fractions: Array
    """Fractions of each task's environment steps, from the first at which every task was evaluated."""
    curves: dict[str, Array]
    """[runs, tasks, fractions] by sampler, smoothed by a centred mean."""
    interquartile_means: dict[str, Interval]
    baseline: str
    """Uniform replay (of the first directory that has it), or the first sampler if uniform replay was not run."""
    improvements: dict[tuple[str, str], Interval]
    """Probability of improvement over the baseline, by (sampler, baseline)."""


def rows(results: Results, window: int, tuned_seed: int = paper.TUNED_SEED) -> list[Row]:
    """The measures of every method, in the order of the study."""
    published = {(row.task, row.agent, row.sampler): row for row in paper_rows()}
    made = []
    for task, agent, sampler in results.methods():
        curves = results.seeds_of((task, agent, sampler))
        steps, scores = common(list(curves.values()))
        if len(steps) == 0:
            results.note(f"{task} {agent} {sampler}: the seeds have no evaluation step in common")
            continue
        ends = [int(curve.steps[-1]) for curve in curves.values()]
        if max(ends) > steps[-1]:
            furthest = sum(end == max(ends) for end in ends)
            results.note(
                f"{task} {agent} {sampler}: {furthest} of {len(ends)} seeds reached step {max(ends):,}, but all its "
                f"numbers are at step {int(steps[-1]):,}, the last one that all seeds have"
            )
        first = next(iter(curves.values()))
        own = published.get((paper.name_of(task), agent, first.rule))
        others = [curve for seed, curve in curves.items() if seed != tuned_seed]
        untouched = measure(*common(others), window) if 0 < len(others) < len(curves) else None
        is_comparable = own is not None and not own.slip and int(steps[-1]) == paper.horizon(task, agent)
        row = Row(task, agent, sampler, first.source, tuple(curves), int(steps[-1]), measure(steps, scores, window),
                  untouched, own, is_comparable)  # fmt: skip
        made.append(row)
    return made


def aggregates(results: Results, window: int) -> list[Aggregate]:
    """One aggregate per agent, over the tasks where all samplers share seeds and uniform replay improved.

    A task with one evaluation is left out: its first and its last score, by which scores are normalized, are the same.
    """
    agents = dict.fromkeys(curve.agent for curve in results.curves)
    made = [_aggregate(results, agent, window) for agent in agents]
    return [aggregate for aggregate in made if aggregate is not None]


def _aggregate(results: Results, agent: str, window: int) -> Aggregate | None:
    own = [curve for curve in results.curves if curve.agent == agent]
    samplers = list(dict.fromkeys(curve.sampler for curve in own))
    by_task: dict[str, dict[str, dict[int, Curve]]] = {}
    for curve in own:
        by_task.setdefault(curve.task, {}).setdefault(curve.sampler, {})[curve.seed] = curve
    complete = {task: methods for task, methods in by_task.items() if len(methods) == len(samplers)}
    seeds = _common_seeds(complete)
    if not seeds or len(samplers) < 2:
        return None
    baseline = next((curve.sampler for curve in own if curve.rule == BASELINE), samplers[0])
    scales = {task: _scale(methods, baseline, seeds, window) for task, methods in complete.items()}
    for task, (low, high) in scales.items():
        sides = [[runs[seed] for seed in seeds] for runs in complete[task].values()]
        largest = max(float(np.abs(run.scores).max()) for runs in sides for run in runs)
        if min(len(run.steps) for runs in sides for run in runs) < 2:
            results.note(f"{task} {agent}: some runs have one evaluation, so it is not in the aggregates")
            del complete[task]
        elif high - low <= _LEAST_RISE * largest:
            results.note(f"{task} {agent}: uniform replay did not improve, so it is not in the aggregates")
            del complete[task]
        elif not all(len(common(runs)[0]) for runs in sides):
            results.note(f"{task} {agent}: seeds have no evaluation step in common, so it is not in the aggregates")
            del complete[task]
    if not complete:
        return None
    fractions = _evaluated(complete, seeds)
    finals: dict[str, list[Array]] = {sampler: [] for sampler in samplers}
    curves: dict[str, list[Array]] = {sampler: [] for sampler in samplers}
    for task, methods in complete.items():
        low, high = scales[task]
        for sampler in samplers:
            chosen = [methods[sampler][seed] for seed in seeds]
            steps, scores = common(chosen)
            normalized = (scores - low) / (high - low)
            finals[sampler].append(smooth(normalized, window)[:, -1])
            at = fractions * steps[-1]
            curves[sampler].append(np.stack([np.interp(at, steps, run) for run in centred(normalized, window)]))
    matrices = {sampler: np.stack(columns, axis=1) for sampler, columns in finals.items()}
    return Aggregate(
        agent,
        tuple(complete),
        seeds,
        matrices,
        fractions,
        {sampler: np.stack(columns, axis=1) for sampler, columns in curves.items()},
        {sampler: with_interval(interquartile_mean, scores) for sampler, scores in matrices.items()},
        baseline,
        {
            (one, baseline): with_interval(probability_of_improvement, matrices[one], matrices[baseline])
            for one in samplers
            if one != baseline
        },
    )


def _common_seeds(complete: dict[str, dict[str, dict[int, Curve]]]) -> tuple[int, ...]:
    sets = [set(runs) for methods in complete.values() for runs in methods.values()]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _scale(
    methods: dict[str, dict[int, Curve]], baseline: str, seeds: tuple[int, ...], window: int
) -> tuple[float, float]:
    """The scores normalized to 0 and 1: the mean first evaluation, and the baseline's mean final score."""
    first = [methods[sampler][seed].scores[0] for sampler in methods for seed in seeds]
    last = [smooth(methods[baseline][seed].scores, window)[-1] for seed in seeds]
    return float(np.mean(first)), float(np.mean(last))


def _evaluated(complete: dict[str, dict[str, dict[int, Curve]]], seeds: tuple[int, ...]) -> Array:
    """The fractions from the first evaluation of all runs on."""
    begins = []
    for methods in complete.values():
        for runs in methods.values():
            steps, _ = common([runs[seed] for seed in seeds])
            begins.append(steps[0] / steps[-1])
    begin = max(begins) - 1e-9
    return np.array([fraction for fraction in _FRACTIONS if fraction >= begin])
