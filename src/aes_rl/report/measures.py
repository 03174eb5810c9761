"""The paper's five measures of a method on a task, in the forms that its table allows."""

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Measures(NamedTuple):
    """Of the seed-mean test curve, smoothed by a trailing moving average."""

    learning_speed: float
    """Max score ÷ the step at which it was reached. Of negative scores it rewards slowness, so no best is marked."""
    learning_stability: float
    """Final performance ÷ max score; for negative scores max ÷ final, so that 1 is best for both."""
    max_score: float
    """Largest over the last 60 % of the steps."""
    robustness: float
    """Mean over the last 20 % of the steps of the standard deviation across seeds (ddof 1); 0 for one seed."""
    final_performance: float
    """The last score."""


def measure(steps: Array, scores: Array, window: int) -> Measures:
    """The measures of scores [seeds, steps]; each is smoothed over `window` evaluations."""
    smoothed = smooth(scores, window)
    mean = smoothed.mean(axis=0)
    late = np.flatnonzero(steps > 0.4 * steps[-1])
    peak = late[np.argmax(mean[late])]  # the first of equals
    largest, final = float(mean[peak]), float(mean[-1])
    below, above = (largest, final) if largest < 0 else (final, largest)
    latest = steps > 0.8 * steps[-1]
    spread = smoothed[:, latest].std(axis=0, ddof=1).mean() if len(scores) > 1 else 0.0
    return Measures(
        learning_speed=largest / float(steps[peak]),
        learning_stability=below / above if above else float("nan"),
        max_score=largest,
        robustness=float(spread),
        final_performance=final,
    )


def smooth(scores: Array, window: int) -> Array:
    """Trailing moving average along the last axis; the first values average what there is."""
    # Every window summed by itself: differences of running sums would tell equal scores apart by their rounding.
    ends = range(1, scores.shape[-1] + 1)
    return np.stack([scores[..., max(0, end - window) : end].mean(axis=-1) for end in ends], axis=-1)


def best_of(values: dict[str, Measures], name: str) -> set[str]:
    """The methods that are best by one measure; none where scores are negative and the measure is the speed."""
    if len(values) < 2:
        return set()
    if name == "learning_speed" and any(value.max_score < 0 for value in values.values()):
        return set()
    numbers = {method: getattr(value, name) for method, value in values.items()}
    target = min(numbers.values()) if name == "robustness" else max(numbers.values())
    return {method for method, number in numbers.items() if number == target}
