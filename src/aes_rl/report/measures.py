"""The paper's five measures of a method on a task, as defined by the numbers in its table."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Measures(NamedTuple):
    """Measures of the mean test curve over seeds, smoothed by a trailing moving average."""

    learning_speed: float
    """Max score ÷ the step of the max score. For negative scores slower is better, so no best value is marked. nan if
    there is one evaluation only, as are stability and max score."""
    learning_stability: float
    """Final performance ÷ max score; max ÷ final for negative scores, so that 1 is always best."""
    max_score: float
    """Largest score in the last 60 % of the steps."""
    robustness: float
    """Standard deviation across seeds (ddof 1), mean over the last 20 % of the steps; nan for one seed."""
    final_performance: float
    """The last score."""


def measure(steps: NDArray[np.int64], scores: Array, window: int) -> Measures:
    """Compute the measures from scores [seeds, steps], smoothed over `window` evaluations."""
    smoothed = smooth(scores, window)
    mean = smoothed.mean(axis=0)
    late = np.flatnonzero(steps > 0.4 * steps[-1])
    peak = late[np.argmax(mean[late])]  # the first maximum
    largest, final = float(mean[peak]), float(mean[-1])
    below, above = (largest, final) if largest < 0 else (final, largest)
    latest = steps > 0.8 * steps[-1]
    spread = smoothed[:, latest].std(axis=0, ddof=1).mean() if len(scores) > 1 else math.nan
    if len(steps) == 1:
        return Measures(math.nan, math.nan, math.nan, float(spread), final)
    return Measures(
        learning_speed=largest / float(steps[peak]),
        learning_stability=below / above if above else math.nan,
        max_score=largest,
        robustness=float(spread),
        final_performance=final,
    )


def smooth(scores: Array, window: int) -> Array:
    """Trailing moving average along the last axis. The first values average over fewer scores."""
    # Each window is averaged separately: with running sums, rounding would make equal scores differ.
    ends = range(1, scores.shape[-1] + 1)
    return np.stack([scores[..., max(0, end - window) : end].mean(axis=-1) for end in ends], axis=-1)


def centred(scores: Array, window: int) -> Array:
    """Centred moving average along the last axis, for figures.

    Near the start, where curves rise, it averages over fewer scores on both sides, so that the curve is not shifted;
    near the end over fewer after the point.
    """
    count, half = scores.shape[-1], window // 2
    means = []
    for index in range(count):
        before = min(index, half)
        means.append(scores[..., index - before : index + before + 1].mean(axis=-1))
    return np.stack(means, axis=-1)


def best_of(values: dict[str, Measures], name: str) -> set[str]:
    """The methods with the best value of a measure. Learning speed has no best if a max score is negative.

    No value is best beside one that is missing.
    """
    if len(values) < 2 or any(math.isnan(getattr(value, name)) for value in values.values()):
        return set()
    if name == "learning_speed" and any(value.max_score < 0 for value in values.values()):
        return set()
    numbers = {method: getattr(value, name) for method, value in values.items()}
    target = min(numbers.values()) if name == "robustness" else max(numbers.values())
    return {method for method, number in numbers.items() if number == target}
