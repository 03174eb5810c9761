"""Are the scores of two sets of runs told apart? Every p in docs/results/index.md beside published runs is from here.

python scripts/told_apart.py FIRST SECOND [FIRST SECOND ...] [START-END ...]

FIRST and SECOND are runs of uniform replay (a folder of results, or several with commas between them) or published
curves (a file TASK-vN_AGENT.csv, whose random steps are counted here as everywhere). For each interval of steps, its
end included and its start not, each seed's mean over its evaluations: seeds, lowest, highest, mean and median of both,
how many of the first are within the range of the second, and p of the Mann-Whitney test. By default every tenth of a
million steps, both halves and all. Of several pairs, also how often a run of a first beats one of its second, averaged
over pairs, and how often chance would take that so far from a half (a permutation test within pairs).
"""

import re
import sys
from pathlib import Path

import numpy as np
from beside_published import UNCOUNTED
from scipy.stats import mannwhitneyu

from aes_rl.report.load import Array, load
from aes_rl.report.reference import read_reference
from aes_rl.report.statistics import pooled_permutation_test

TENTHS = [(start, start + 100_000) for start in range(0, 1_000_000, 100_000)]
INTERVALS = [*TENTHS, (0, 500_000), (500_000, 1_000_000), (0, 1_000_000)]

Curves = list[tuple[Array, Array]]
"""Steps and scores of each seed."""


def main(pairs: list[tuple[str, str]], intervals: list[tuple[int, int]]) -> None:
    """A line for each pair and interval that both have evaluations in."""
    curves = [(_curves(first), _curves(second)) for first, second in pairs]
    for interval in intervals:
        sides = [means for ours, theirs in curves if (means := _print_line(ours, theirs, *interval))]
        if len(sides) > 1:
            better = np.mean([(own[:, None] > other).mean() for own, other in sides])
            p = pooled_permutation_test(sides)
            print(f"together: higher with probability {better:.2f}, p {p:.3f}", end="\n\n")


def _print_line(ours: Curves, theirs: Curves, start: int, stop: int) -> tuple[Array, Array] | None:
    # First evaluations do not count: that of published curves is of an agent that has not learned yet.
    start = max(start, *(int(steps[0]) for steps, _ in ours + theirs))
    if start >= stop or stop > min(int(steps[-1]) for steps, _ in ours + theirs):
        return None
    own, other = _means(ours, start, stop), _means(theirs, start, stop)
    inside = int(((other.min() <= own) & (own <= other.max())).sum())
    p = mannwhitneyu(own, other).pvalue
    print(f"{start:,} to {stop:,}: {_told(own)} | {_told(other)} | {inside} of {len(own)} inside, p {p:.3f}")
    return own, other


def _curves(paths: str) -> Curves:
    found: Curves = []
    for path in map(Path, paths.split(",")):
        if path.is_file():
            published = read_reference(path, "published")
            found += [(published.steps + UNCOUNTED[published.agent], scores) for scores in published.scores]
        else:
            found += [(curve.steps, curve.scores) for curve in load(path).curves if curve.sampler == "uniform"]
    return found


def _means(curves: Curves, start: int, stop: int) -> Array:
    return np.array([scores[(steps > start) & (steps <= stop)].mean() for steps, scores in curves])


def _told(means: Array) -> str:
    centre = f"mean {means.mean():,.1f}, median {np.median(means):,.1f}"
    return f"{len(means)} seeds {means.min():,.1f} to {means.max():,.1f}, {centre}"


if __name__ == "__main__":
    paths = [word for word in sys.argv[1:] if not re.fullmatch(r"\d+-\d+", word)]
    asked = [tuple(map(int, word.split("-"))) for word in sys.argv[1:] if word not in paths]
    if not paths or len(paths) % 2:
        raise SystemExit(__doc__)
    main(list(zip(paths[::2], paths[1::2], strict=True)), asked or INTERVALS)
