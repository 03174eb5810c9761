"""Minutes on one core until a score, with small batches and without. Templates call these functions by name.

Curves are those of the confirmation once it has all that are needed, until then those of the pilot. Each is drawn at
the speed of a row of the training benchmark.
"""

import json
from functools import cache
from typing import NamedTuple

import numpy as np

from aes_rl.report.curves import Array
from benchmarks import race
from scripts import svg
from scripts.results_pages import confirmation, data
from scripts.results_pages.confirmation import BEST, Side
from scripts.results_pages.small_batches import PILOT_TASKS
from scripts.results_pages.tables import fraction, table

_SMOOTHED = 5
"""Evaluations that a score is the mean of."""
_LEFT, _RIGHT, _PANEL, _GAP = 60.0, 464.0, 150.0, 46.0


class Contestant(NamedTuple):
    """Curves of a sampler with a batch size, at the speed of a row of the training benchmark."""

    label: str
    sampler: str
    batch_size: int
    benchmark: str
    colour: str
    dashes: str = "none"
    is_drawn: bool = True
    """Whether the figure shows it."""


def _ours(size: int, dashes: str = "none") -> Contestant:
    """This package with selection: a draw for each network, or one in the pilot, which had no other."""
    name, sampler = ("separate", BEST) if has_fresh_runs() else ("predictive", "predictive")
    return Contestant(
        f"aes-rl, selection, {size}", sampler, size, f"{name}, batch {size}", svg.COLOURS["predictive"], dashes
    )


@cache
def has_fresh_runs() -> bool:
    """Whether the confirmation has all runs that the table needs."""
    sides = [Side("uniform", 256), Side("predictive", 64), Side(BEST, 64), Side(BEST, 16)]
    return all(len(confirmation.returns(task, side)) for task in PILOT_TASKS for side in sides)


@cache
def contestants() -> tuple[Contestant, ...]:
    """The host by itself and with our buffer, and this package with and without selection."""
    host, grey, ours = "Stable-Baselines3", "#777777", svg.COLOURS["predictive"]
    return (
        Contestant(f"{host}, 256, its default", "uniform", 256, "sb3, batch 256", grey),
        Contestant(f"{host}, 64", "uniform", 64, "sb3, batch 64", grey, is_drawn=False),
        Contestant(f"{host} with our buffer, 64", "predictive", 64, "sb3, our buffer, batch 64", ours, "2 4"),
        Contestant("aes-rl, uniform replay, 256", "uniform", 256, "uniform, batch 256", grey, "2 4"),
        Contestant("aes-rl, uniform replay, 64", "uniform", 64, "uniform, batch 64", grey, "6 4"),
        _ours(64),
        _ours(16, "6 4"),
    )


def _labelled(label: str) -> Contestant:
    return next(one for one in contestants() if one.label == label)


def _curves(task: str, one: Contestant) -> Array:
    """Test returns [seeds, evaluations]."""
    if has_fresh_runs():
        return confirmation.curves(task, Side(one.sampler, one.batch_size))
    return data.pilot(task, one.batch_size, one.sampler)


@cache
def _steps_per_minute() -> dict[str, float]:
    folder = data.ROOT / "benchmarks" / "results"
    rates = json.loads((folder / "train.json").read_text())["env_steps_per_s"]
    found = {name.removesuffix(", 1 threads"): 60 * r for name, r in rates.items() if name.endswith(", 1 threads")}
    # Uniform replay with 64 did not take part there, but beside predictive selection in another benchmark.
    costs = json.loads((folder / "samplers.json").read_text())["cost_over_uniform"]
    return {"uniform, batch 64": found["predictive, batch 64"] * costs["predictive, batch 64"], **found}


def minutes(contestant: Contestant, steps: int) -> float:
    """Minutes that environment steps take on one core."""
    return steps / _steps_per_minute()[contestant.benchmark]


def _smoothed(task: str, one: Contestant) -> Array:
    """The mean curve over seeds, each point the mean of five evaluations."""
    curve = _curves(task, one).mean(axis=0)
    means: Array = np.convolve(curve, np.full(_SMOOTHED, 1 / _SMOOTHED), "valid")
    return means


def _goal(task: str) -> float:
    return float(_smoothed(task, contestants()[0])[-1])


def share_at_end(task: str, sampler: str, batch_size: int = 64) -> str:
    """The score after 300,000 steps, relative to that of uniform replay with a batch of 256."""
    one = contestants()[0]._replace(sampler=sampler, batch_size=batch_size)
    return fraction(float(_smoothed(task, one)[-1]) / _goal(task))


def steps_to(share: float, task: str, contestant: Contestant) -> int | None:
    """Steps until a share of the score that uniform replay with a batch of 256 ends with; None if it is not reached."""
    reached = np.flatnonzero(_smoothed(task, contestant) >= share * _goal(task))
    return data.PILOT_STEPS[int(reached[0]) + _SMOOTHED - 1] if len(reached) else None


def minutes_to_score() -> str:
    """Minutes on one core until shares of the goal, and the share that is reached in the end."""
    lines = []
    for task in PILOT_TASKS:
        for contestant in contestants():
            found = [steps_to(share, task, contestant) for share in (0.5, 0.9, 1.0)]
            texts = [_in_minutes(contestant, steps) for steps in found]
            whole = f"{minutes(contestant, data.PILOT_STEPS[-1]):.1f}"
            at_end = share_at_end(task, contestant.sampler, contestant.batch_size)
            lines.append([task, contestant.label, *texts, whole, at_end])
    head = ["task", "training", "half", "nine tenths", "all of it", "300,000 steps", "score then"]
    return table(head, lines)


def minutes_until(share: float, task: str, label: str) -> str:
    """Minutes of one contestant until a share of the goal; a dash if it is not reached."""
    one = _labelled(label)
    return _in_minutes(one, steps_to(share, task, one))


def _in_minutes(one: Contestant, steps: int | None) -> str:
    return "–" if steps is None else f"{minutes(one, steps):.1f}"


def selection_and_control() -> str:
    """Minutes until nine tenths of the goal with a batch of 64, with and without selection."""
    labels = ("aes-rl, uniform replay, 64", OURS, "Stable-Baselines3, 64", IN_HOST)
    lines = [[label, *(minutes_until(0.9, task, label) for task in PILOT_TASKS)] for label in labels]
    return table(["training", *PILOT_TASKS], lines)


def cost_in_host() -> str:
    """Time of a step of the host with our buffer and a batch of 64, relative to its own buffer."""
    figures = json.loads((data.ROOT / "benchmarks" / "results" / "train.json").read_text())
    return fraction(1 / figures["our_buffer_in_sb3_over_its_own"])


def clock_table(task: str, goal: float) -> str:
    """What a clock showed: steps and minutes until a score, one run per contestant."""
    found = race.read(data.ROOT / "benchmarks" / "results" / "time_to_score.csv", task)
    lines = []
    for (name, _), points in sorted(found.items(), key=lambda one: -one[1][-1].cpu_minutes):
        number = race.reached(points, goal)
        assert number is not None
        point = points[number]
        lines.append([name, f"{point.step:,}", f"{point.cpu_minutes:.1f}", f"{point.minutes:.1f}"])
    return table(["training", "steps", "minutes of CPU time", "minutes by the clock"], lines)


IN_HOST = "Stable-Baselines3 with our buffer, 64"
OURS = "aes-rl, selection, 64"


def times_faster(share: float, task: str, label: str = OURS) -> float:
    """Time of the host's default to a share of the score, as a multiple of another's; 0 if that does not reach it."""
    host, ours = contestants()[0], _labelled(label)
    needed = steps_to(share, task, host), steps_to(share, task, ours)
    assert needed[0] is not None
    return 0.0 if needed[1] is None else minutes(host, needed[0]) / minutes(ours, needed[1])


def least_times_faster(share: float, label: str = OURS) -> str:
    """The least of these over the tasks."""
    return f"{min(times_faster(share, task, label) for task in PILOT_TASKS):.1f}"


def most_times_faster(share: float, label: str = OURS) -> str:
    """The most of these over the tasks."""
    return f"{max(times_faster(share, task, label) for task in PILOT_TASKS):.1f}"


def mean_times_faster(share: float) -> str:
    """Their mean over the tasks."""
    return f"{np.mean([times_faster(share, task) for task in PILOT_TASKS]):.1f}"


def clock_times_faster(task: str, goal: float, label: str, by_clock: bool = False) -> str:
    """The same by the runs with a real clock: CPU time, or the clock's."""
    found = race.read(data.ROOT / "benchmarks" / "results" / "time_to_score.csv", task)
    taken = {}
    for (name, _), points in found.items():
        number = race.reached(points, goal)
        assert number is not None
        taken[name] = points[number].minutes if by_clock else points[number].cpu_minutes
    return f"{taken['Stable-Baselines3, default'] / taken[label]:.1f}"


def tasks_with_all_of_it() -> list[str]:
    """Tasks on which predictive selection with a batch of 64 reaches the whole score."""
    return [task for task in PILOT_TASKS if times_faster(1.0, task)]


def time_figure() -> str:
    """Mean return against minutes on one core, a panel per task."""
    drawn = [one for one in contestants() if one.is_drawn]
    top = 28 + 22 * len(drawn)
    height = top + (_PANEL + _GAP) * len(PILOT_TASKS) + 6
    longest = max(minutes(one, data.PILOT_STEPS[-1]) for one in drawn)
    elements = []
    for number, one in enumerate(drawn):
        y = 22 + 22 * number
        elements += [svg.path([(24, y), (54, y)], one.colour, 2.5, one.dashes), svg.text(62, y + 4.5, one.label)]
    for number, task in enumerate(PILOT_TASKS):
        upper = top + (_PANEL + _GAP) * number + 24
        elements += _panel(task, drawn, upper, upper + _PANEL - 24, longest)
    elements.append(svg.text((_LEFT + _RIGHT) / 2, height - 12, "minutes on one core", "middle"))
    return svg.page(480, int(height) + 4, "Mean return against training time on one core", elements)


def _panel(task: str, drawn: list[Contestant], top: float, bottom: float, longest: float) -> list[str]:
    curves = [_curves(task, one).mean(axis=0) for one in drawn]
    highest = 1.04 * max(curve.max() for curve in curves)
    elements = [svg.text(_LEFT, top - 8, task, style='font-weight="600"')]
    for value in _ticks(highest):
        y = bottom - value / highest * (bottom - top)
        elements += [svg.line(_LEFT, y, _RIGHT, y), svg.text(_LEFT - 8, y + 4.5, f"{value:,}", "end")]
    for value in range(0, int(longest) + 1, 10):
        x = _LEFT + value / longest * (_RIGHT - _LEFT)
        elements.append(svg.text(x, bottom + 17, str(value), "middle"))
    for one, curve in zip(drawn, curves, strict=True):
        across = [_LEFT + minutes(one, step) / longest * (_RIGHT - _LEFT) for step in data.PILOT_STEPS]
        up = [bottom - max(value, 0) / highest * (bottom - top) for value in curve]
        elements.append(svg.path(zip(across, up, strict=True), one.colour, 2.5, one.dashes))
    return elements


def _ticks(highest: float) -> list[int]:
    """Three to five round values from 0."""
    step = next(step for step in (500, 1000, 2000, 4000) if highest / step < 5)
    return list(range(0, int(highest) + 1, step))
