"""The evaluations of a run over its training."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Key = tuple[str, str, str]
"""Task, agent, sampler."""
Member = tuple[str, str, str, int]
"""Task, agent, sampler, seed."""


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run."""

    task: str
    agent: str
    sampler: str
    seed: int
    steps: Array
    scores: Array
    """Mean return of the test episodes at each of the steps."""

    @property
    def key(self) -> Key:
        """Which method it is a run of."""
        return self.task, self.agent, self.sampler

    @property
    def member(self) -> Member:
        """Which run it is."""
        return self.task, self.agent, self.sampler, self.seed


def common(curves: list[Curve]) -> tuple[Array, Array]:
    """Steps at which all of the runs were evaluated, and their scores [runs, steps]."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    return steps, np.stack([curve.scores[np.isin(curve.steps, steps)] for curve in curves])
