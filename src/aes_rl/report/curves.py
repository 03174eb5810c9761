"""Learning curves: the evaluations of a run during training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Steps = NDArray[np.int64]
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
    steps: Steps
    scores: Array
    """Mean return of the test episodes at each step."""
    rule: str
    """Name of the sampler in the run's files. `sampler` adds the source where two sources have the same sampler."""
    source: str = ""
    """Which of several given directories the run is from; empty if one was given."""

    @property
    def key(self) -> Key:
        """Task, agent and sampler of the run."""
        return self.task, self.agent, self.sampler

    @property
    def member(self) -> Member:
        """Task, agent, sampler and seed of the run."""
        return self.task, self.agent, self.sampler, self.seed


def common(curves: list[Curve]) -> tuple[Steps, Array]:
    """The steps at which all runs were evaluated, and the scores [runs, steps]."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    return steps, np.stack([curve.scores[np.isin(curve.steps, steps)] for curve in curves])
