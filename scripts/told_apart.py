"""Are the scores of two sets of runs told apart? Every p in docs/results/index.md beside published runs is from here.

python scripts/told_apart.py FIRST SECOND [START-END ...]

FIRST and SECOND are runs of uniform replay (a folder of results, or several with commas between them) or published
curves (a file TASK-vN_AGENT.csv, whose random steps are counted here as everywhere). For each interval of steps, its
end included and its start not, each seed's mean over its evaluations: seeds, lowest, highest, mean and median of both,
how many of the first are within the range of the second, and p of the Mann-Whitney test. By default every tenth of a
million steps, both halves and all.
"""

import sys
from pathlib import Path

import numpy as np
from beside_published import UNCOUNTED
from scipy.stats import mannwhitneyu

from aes_rl.report.load import Array, load
from aes_rl.report.reference import read_reference

TENTHS = [(start, start + 100_000) for start in range(0, 1_000_000, 100_000)]
INTERVALS = [*TENTHS, (0, 500_000), (500_000, 1_000_000), (0, 1_000_000)]

Curves = list[tuple[Array, Array]]
"""Steps and scores of each seed."""


def main(first: str, second: str, intervals: list[tuple[int, int]]) -> None:
    """A line for each interval that both have evaluations in."""
    ours, theirs = _curves(first), _curves(second)
    # First evaluations do not count: that of published curves is of an agent that has not learned yet.
    begin = max(int(steps[0]) for steps, _ in ours + theirs)
    end = min(int(steps[-1]) for steps, _ in ours + theirs)
    for asked, stop in intervals:
        start = max(asked, begin)
        if start >= stop or stop > end:
            continue
        own, other = (_means(curves, start, stop) for curves in (ours, theirs))
        inside = sum(min(other) <= score <= max(other) for score in own)
        p = mannwhitneyu(own, other).pvalue
        print(f"{start:,} to {stop:,}: {_told(own)} | {_told(other)} | {inside} of {len(own)} inside, p {p:.3f}")


def _curves(paths: str) -> Curves:
    found: Curves = []
    for path in map(Path, paths.split(",")):
        if path.is_file():
            published = read_reference(path, "published")
            found += [(published.steps + UNCOUNTED[published.agent], scores) for scores in published.scores]
        else:
            found += [(curve.steps, curve.scores) for curve in load(path).curves if curve.sampler == "uniform"]
    return found


def _means(curves: Curves, start: int, stop: int) -> list[float]:
    return [float(scores[(steps > start) & (steps <= stop)].mean()) for steps, scores in curves]


def _told(means: list[float]) -> str:
    centre = f"mean {np.mean(means):,.1f}, median {np.median(means):,.1f}"
    return f"{len(means)} seeds {min(means):,.1f} to {max(means):,.1f}, {centre}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case [first, second, *intervals]:
            chosen = [tuple(map(int, interval.split("-"))) for interval in intervals]
            main(first, second, chosen or INTERVALS)
        case _:
            raise SystemExit(__doc__)
