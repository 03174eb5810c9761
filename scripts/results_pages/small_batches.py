"""The pilot with small batches: its scores, and the time that they took. Templates call these functions by name."""

import json
from functools import cache
from typing import NamedTuple

import numpy as np

from aes_rl.report.curves import Array
from aes_rl.report.statistics import pooled_permutation_test, probability_of_improvement
from scripts import svg
from scripts.results_pages import data
from scripts.results_pages.tables import NAMES, fraction, p_value, score, table

PILOT_TASKS = ("HalfCheetah", "Hopper", "Walker2d")
_SIZES = (16, 64, 256)
_DRAWN = {"uniform": "#777777", "predictive": svg.COLOURS["predictive"]}
"""Samplers in the figures, and their colours."""
_SMOOTHED = 5
"""Evaluations that a score is the mean of."""
_LEFT, _RIGHT, _PANEL, _GAP = 60.0, 464.0, 150.0, 46.0


class Contestant(NamedTuple):
    """Curves of the pilot at the speed of a row of the training benchmark."""

    label: str
    sampler: str
    batch_size: int
    benchmark: str
    colour: str
    dashes: str = "none"


CONTESTANTS = (
    Contestant("uniform, 256, at Stable-Baselines3's speed", "uniform", 256, "sb3, batch 256", "#777777"),
    Contestant("uniform, 256", "uniform", 256, "uniform, batch 256", "#777777", "2 4"),
    Contestant("predictive, 64", "predictive", 64, "predictive, batch 64", svg.COLOURS["predictive"]),
    Contestant("predictive, 16", "predictive", 16, "predictive, batch 16", svg.COLOURS["predictive"], "6 4"),
)


def _pilot_pairs(sampler: str, size: int, other: str, other_size: int) -> list[tuple[Array, Array]]:
    pairs = []
    for task in PILOT_TASKS:
        ours, theirs = data.pilot(task, size, sampler), data.pilot(task, other_size, other)
        if len(ours) and len(theirs):
            pairs.append((ours.mean(axis=1), theirs.mean(axis=1)))
    return pairs


def pilot_improvement(sampler: str, size: int, other: str = "uniform", other_size: int | None = None) -> str:
    """Probability of improvement in the pilot by mean return during training, three tasks together."""
    pairs = _pilot_pairs(sampler, size, other, other_size or size)
    if len(pairs) < len(PILOT_TASKS):
        return "–"
    mean = float(np.mean([probability_of_improvement(ours[:, None], theirs[:, None]) for ours, theirs in pairs]))
    return f"{fraction(mean)} (p {p_value(pooled_permutation_test(pairs))})"


def pilot_verdicts() -> str:
    """Every sampler against uniform replay with the same batch size."""
    samplers = ("prioritized", "adaptive", "predictive")
    lines = [[str(size), *(pilot_improvement(sampler, size) for sampler in samplers)] for size in _SIZES]
    return table(["batch size", *(NAMES[sampler] for sampler in samplers)], lines)


def pilot_scores() -> str:
    """Mean return during training, and over the last 100,000 steps."""
    samplers = ("uniform", "prioritized", "adaptive", "predictive", "balanced")
    lines = []
    for task in PILOT_TASKS:
        for size in (16, 32, 64, 256):
            own = [data.pilot(task, size, sampler) for sampler in samplers]
            if any(len(one) for one in own):
                texts = [f"{score(one.mean())} ({score(one[:, -5:].mean())})" if len(one) else "–" for one in own]
                lines.append([task, str(size), *texts])
    return table(
        ["task", "batch size", *(NAMES.get(name, "predictive, networks balanced") for name in samplers)], lines
    )


def pilot_ratio(task: str, size: int, sampler: str) -> str:
    """Mean return during training relative to uniform replay with a batch of 256."""
    return fraction(_relative(task, size, sampler))


def batch_figure() -> str:
    """Mean return during training against the batch size, relative to uniform replay at 256; a panel per task."""
    top, bottom, width, gap = 74.0, 250.0, 124.0, 14.0
    highest = 1.4
    elements = []
    for number, sampler in enumerate(_DRAWN):
        x = 24 + 120 * number
        elements += [
            svg.path([(x, 22), (x + 30, 22)], _DRAWN[sampler], 2.5),
            svg.text(x + 38, 26.5, f"{sampler} replay"),
        ]
    for value in (0.0, 0.5, 1.0):
        y = bottom - value / highest * (bottom - top)
        elements += [svg.line(44, y, 464, y), svg.text(36, y + 4.5, f"{value:g}", "end")]
    for number, task in enumerate(PILOT_TASKS):
        left = 48 + (width + gap) * number
        across = {size: left + 20 + place * (width - 40) / 2 for place, size in enumerate(_SIZES)}
        elements.append(svg.text(left + width / 2, top - 14, task, "middle", style='font-weight="600"'))
        elements += [svg.text(x, bottom + 18, str(size), "middle") for size, x in across.items()]
        for sampler, colour in _DRAWN.items():
            heights = [_relative(task, size, sampler) / highest * (bottom - top) for size in _SIZES]
            points = [(x, bottom - height) for x, height in zip(across.values(), heights, strict=True)]
            elements += [svg.path(points, colour, 2.5), *(svg.dot(x, y, colour) for x, y in points)]
    elements.append(svg.text(254, bottom + 40, "batch size", "middle"))
    return svg.page(480, 300, "Mean return during training against the batch size", elements)


def _relative(task: str, size: int, sampler: str) -> float:
    return float(data.pilot(task, size, sampler).mean() / data.pilot(task, 256, "uniform").mean())


@cache
def _steps_per_minute() -> dict[str, float]:
    rates = json.loads((data.ROOT / "benchmarks" / "results" / "train.json").read_text())["env_steps_per_s"]
    return {name.removesuffix(", 1 threads"): 60 * rate for name, rate in rates.items() if name.endswith(", 1 threads")}


def minutes(contestant: Contestant, steps: int) -> float:
    """Minutes that environment steps take on one core."""
    return steps / _steps_per_minute()[contestant.benchmark]


def _smoothed(task: str, batch_size: int, sampler: str) -> Array:
    """The mean curve over seeds, each point the mean of five evaluations."""
    curve = data.pilot(task, batch_size, sampler).mean(axis=0)
    means: Array = np.convolve(curve, np.full(_SMOOTHED, 1 / _SMOOTHED), "valid")
    return means


def _goal(task: str) -> float:
    return float(_smoothed(task, 256, "uniform")[-1])


def share_at_end(task: str, batch_size: int, sampler: str) -> str:
    """The score after 300,000 steps, relative to that of uniform replay with a batch of 256."""
    return fraction(float(_smoothed(task, batch_size, sampler)[-1]) / _goal(task))


def steps_to(share: float, task: str, contestant: Contestant) -> int | None:
    """Steps until a share of the score that uniform replay with a batch of 256 ends with; None if it is not reached."""
    reached = np.flatnonzero(_smoothed(task, contestant.batch_size, contestant.sampler) >= share * _goal(task))
    return data.PILOT_STEPS[int(reached[0]) + _SMOOTHED - 1] if len(reached) else None


def minutes_to_score() -> str:
    """Minutes on one core until shares of the goal, and the share that is reached in the end."""
    lines = []
    for task in PILOT_TASKS:
        for contestant in CONTESTANTS:
            found = [steps_to(share, task, contestant) for share in (0.5, 0.9, 1.0)]
            texts = ["–" if steps is None else f"{minutes(contestant, steps):.1f}" for steps in found]
            whole = f"{minutes(contestant, data.PILOT_STEPS[-1]):.1f}"
            at_end = share_at_end(task, contestant.batch_size, contestant.sampler)
            lines.append([task, contestant.label, *texts, whole, at_end])
    head = ["task", "training", "half", "nine tenths", "all of it", "300,000 steps", "score then"]
    return table(head, lines)


def times_faster(share: float, task: str) -> float:
    """How much sooner predictive selection with a batch of 64 has a share of the score than the host's default."""
    host, ours = CONTESTANTS[0], CONTESTANTS[2]
    needed = steps_to(share, task, host), steps_to(share, task, ours)
    assert needed[0] is not None
    return 0.0 if needed[1] is None else minutes(host, needed[0]) / minutes(ours, needed[1])


def least_times_faster(share: float) -> str:
    """The least of these over the tasks."""
    return f"{min(times_faster(share, task) for task in PILOT_TASKS):.1f}"


def mean_times_faster(share: float) -> str:
    """Their mean over the tasks."""
    return f"{np.mean([times_faster(share, task) for task in PILOT_TASKS]):.1f}"


def tasks_with_all_of_it() -> list[str]:
    """Tasks on which predictive selection with a batch of 64 reaches the whole score."""
    return [task for task in PILOT_TASKS if times_faster(1.0, task)]


def time_figure() -> str:
    """Mean return against minutes on one core, a panel per task."""
    top = 28 + 22 * len(CONTESTANTS)
    height = top + (_PANEL + _GAP) * len(PILOT_TASKS) + 6
    longest = max(minutes(one, data.PILOT_STEPS[-1]) for one in CONTESTANTS)
    elements = []
    for number, one in enumerate(CONTESTANTS):
        y = 22 + 22 * number
        elements += [svg.path([(24, y), (54, y)], one.colour, 2.5, one.dashes), svg.text(62, y + 4.5, one.label)]
    for number, task in enumerate(PILOT_TASKS):
        upper = top + (_PANEL + _GAP) * number + 24
        elements += _panel(task, upper, upper + _PANEL - 24, longest)
    elements.append(svg.text((_LEFT + _RIGHT) / 2, height - 12, "minutes on one core", "middle"))
    return svg.page(480, int(height) + 4, "Mean return against training time on one core", elements)


def _panel(task: str, top: float, bottom: float, longest: float) -> list[str]:
    curves = [data.pilot(task, one.batch_size, one.sampler).mean(axis=0) for one in CONTESTANTS]
    highest = 1.04 * max(curve.max() for curve in curves)
    elements = [svg.text(_LEFT, top - 8, task, style='font-weight="600"')]
    for value in _ticks(highest):
        y = bottom - value / highest * (bottom - top)
        elements += [svg.line(_LEFT, y, _RIGHT, y), svg.text(_LEFT - 8, y + 4.5, f"{value:,}", "end")]
    for value in range(0, int(longest) + 1, 10):
        x = _LEFT + value / longest * (_RIGHT - _LEFT)
        elements.append(svg.text(x, bottom + 17, str(value), "middle"))
    for one, curve in zip(CONTESTANTS, curves, strict=True):
        across = [_LEFT + minutes(one, step) / longest * (_RIGHT - _LEFT) for step in data.PILOT_STEPS]
        up = [bottom - max(value, 0) / highest * (bottom - top) for value in curve]
        elements.append(svg.path(zip(across, up, strict=True), one.colour, 2.5, one.dashes))
    return elements


def _ticks(highest: float) -> list[int]:
    """Three to five round values from 0."""
    step = next(step for step in (500, 1000, 2000, 4000) if highest / step < 5)
    return list(range(0, int(highest) + 1, step))
