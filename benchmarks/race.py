"""Curves of `time_to_score.py`: when a contestant has reached a score."""

import csv
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

SMOOTHED = 5
"""Evaluations that a score is the mean of."""


class Point(NamedTuple):
    """An evaluation of a contestant."""

    step: int
    minutes: float
    cpu_minutes: float
    score: float


def read(path: Path, task: str) -> dict[tuple[str, int], list[Point]]:
    """The curves of a file by contestant and seed."""
    curves: dict[tuple[str, int], list[Point]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["task"] == task:
                times = float(row["minutes"]), float(row["cpu_minutes"])
                point = Point(int(row["env_step"]), *times, float(row["mean_return"]))
                curves.setdefault((row["contestant"], int(row["seed"])), []).append(point)
    return curves


def reached(points: list[Point], goal: float) -> int | None:
    """Number of the first evaluation with which the mean of the last ones is at least the goal."""
    for number in range(SMOOTHED - 1, len(points)):
        if fmean(point.score for point in points[number + 1 - SMOOTHED : number + 1]) >= goal:
            return number
    return None
