"""Figures over environment steps: learning curves, captured fractions and gradient variances."""

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from aes_rl import paper
from aes_rl.report.curves import Array, Steps, common
from aes_rl.report.figures import LOOK, Look, label_steps, look_of, panels, samplers_below, scale_fractions
from aes_rl.report.load import Readings, Results
from aes_rl.report.measures import centred
from aes_rl.report.reference import Reference

_LOWEST_SHOWN = 2
"""An axis of captured fractions starts at this percentile of the lower quartiles, so that no spike scales it."""
_PUBLISHED: Look = ("#777777", (0, (4, 3)))
"""Look of published curves."""


class Outliers(NamedTuple):
    """How many readings of single seeds are below the lower end of their axis."""

    below: int
    readings: int
    """Number of all readings."""
    lowest: float
    """The lowest reading below its axis; 0 if there is none."""


class Quartiles(NamedTuple):
    """Quartiles over seeds at every step with a reading, and the readings themselves."""

    steps: list[int]
    low: list[float]
    median: list[float]
    high: list[float]
    readings: list[list[float]]
    """[steps][seeds]."""


Panel = dict[str, Quartiles]
"""One panel of a figure: quartiles by sampler."""


@mpl.rc_context(LOOK)
def learning_curves(results: Results, agent: str, window: int, references: list[Reference]) -> Figure:
    """Learning curves of one agent, one panel per task: mean ± standard deviation over seeds, as in the paper.

    They are smoothed by a centred moving average over `window` evaluations. The trailing average that the measures use
    would shift them to the right, most at the start.
    """
    tasks = list(dict.fromkeys(c.task for c in results.curves if c.agent == agent))
    figure, axes = panels(len(tasks))
    shown: dict[str, Line2D] = {}
    for axis, task in zip(axes, tasks, strict=True):
        last = max(int(c.steps[-1]) for c in results.curves if (c.task, c.agent) == (task, agent))
        for reference in references:
            within = reference.steps <= last
            if (reference.task, reference.agent) == (paper.name_of(task), agent) and within.sum() > 1:
                steps, scores = reference.steps[within], reference.scores[:, within]
                shown[reference.label] = _band(axis, steps, scores, window, _PUBLISHED)
        for sampler in dict.fromkeys(c.sampler for c in results.curves if (c.task, c.agent) == (task, agent)):
            steps, scores = common(list(results.seeds_of((task, agent, sampler)).values()))
            if len(steps):
                shown[sampler] = _band(axis, steps, scores, window, look_of(sampler))
        label_steps(axis, task, "test return")
    samplers_below(figure, shown)
    return figure


@mpl.rc_context(LOOK)
def captured_fractions(results: Results, agent: str) -> tuple[Figure, Outliers] | None:
    """Captured fraction of every sampler during training, and the readings below the axes; None without any reading."""
    by_task = _by_task(results.captured, agent)
    if not by_task:
        return None
    figure, axes = _drawn(by_task)
    readings, below = [], []
    for axis, (task, panel) in zip(axes, by_task.items(), strict=True):
        lowest = np.percentile([low for quartiles in panel.values() for low in quartiles.low], _LOWEST_SHOWN)
        scale_fractions(axis, "y", float(lowest))
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.axhline(1, color="#999999", linewidth=0.8)
        label_steps(axis, task, "captured fraction")
        of_panel = [value for quartiles in panel.values() for values in quartiles.readings for value in values]
        readings += of_panel
        below += [value for value in of_panel if value < axis.get_ylim()[0]]
    return figure, Outliers(len(below), len(readings), min(below, default=0.0))


@mpl.rc_context(LOOK)
def gradient_variances(results: Results, agent: str) -> Figure | None:
    """Gradient variance of every sampler during training; None without any reading."""
    by_task = _by_task(results.variance, agent)
    if not by_task:
        return None
    figure, axes = _drawn(by_task)
    for axis, task in zip(axes, by_task, strict=True):
        axis.set_yscale("log")
        label_steps(axis, task, "gradient variance")
    return figure


def _band(axis: Axes, steps: Steps, scores: Array, window: int, look: Look) -> Line2D:
    """Draw mean ± standard deviation over seeds: a line with a band, or a marker with a bar for a single evaluation."""
    smoothed = centred(scores, window)
    mean = smoothed.mean(axis=0)
    line = _line(axis, steps.tolist(), mean.tolist(), look)
    if len(scores) > 1:
        spread = smoothed.std(axis=0, ddof=1)
        _spread(axis, steps.tolist(), (mean - spread).tolist(), (mean + spread).tolist(), look[0])
    return line


def _by_task(readings: Readings, agent: str) -> dict[str, Panel]:
    """The panels of one agent, by task. Skips nan: no variance could be removed at that step."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for (task, agent_of_run, sampler, _), points in readings.items():
        if agent_of_run == agent:
            by_step = values.setdefault((task, sampler), {})
            for step, value in points:
                if value == value:  # not nan
                    by_step.setdefault(step, []).append(value)
    by_task: dict[str, Panel] = {}
    for (task, sampler), by_step in values.items():
        if by_step:
            steps = sorted(by_step)
            found = [by_step[step] for step in steps]
            low, median, high = ([float(np.percentile(at_step, q)) for at_step in found] for q in (25, 50, 75))
            by_task.setdefault(task, {})[sampler] = Quartiles(steps, low, median, high, found)
    return by_task


def _drawn(by_task: dict[str, Panel]) -> tuple[Figure, list[Axes]]:
    figure, axes = panels(len(by_task))
    shown: dict[str, Line2D] = {}
    for axis, panel in zip(axes, by_task.values(), strict=True):
        for sampler, quartiles in panel.items():
            look = look_of(sampler)
            shown[sampler] = _line(axis, quartiles.steps, quartiles.median, look)
            _spread(axis, quartiles.steps, quartiles.low, quartiles.high, look[0])
    samplers_below(figure, shown)
    return figure, axes


def _line(axis: Axes, steps: list[int], values: list[float], look: Look) -> Line2D:
    """Draw a line; a single point is drawn as a marker, since a line through it would be invisible."""
    marker = "o" if len(steps) == 1 else ""
    (line,) = axis.plot(steps, values, color=look[0], linestyle=look[1], linewidth=1.5, marker=marker, markersize=5)
    return line


def _spread(axis: Axes, steps: list[int], low: list[float], high: list[float], colour: str) -> None:
    if len(steps) == 1:
        axis.vlines(steps, low, high, color=colour, linewidth=1)
    else:
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
