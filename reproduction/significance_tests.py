"""Tests of whether the scores of two sets of runs differ; the source of the p-values in docs/results/deviations.md.

python reproduction/significance_tests.py FIRST SECOND [FIRST SECOND ...] [START-END ...]   prints a table
python reproduction/significance_tests.py CURVES                           writes results/significance_tests.csv

FIRST and SECOND are runs of uniform replay (a folder of results, or several separated by commas) or published curves (a
file TASK-vN_AGENT.csv; its random steps are counted). For each interval of steps, its end included and its start
excluded, the score of a seed is its mean over the evaluations at steps that both sides have. The table shows how many
seeds of the first side are within the range of the second, the probability that a run of the first scores higher than
one of the second, and the p-value of the Mann-Whitney test. The default intervals are the tenths of a million steps,
both halves and the whole. For several pairs a last line has the mean probability and the p-value of a permutation test
within pairs.

The file holds every comparison that the page mentions, and for groups of cells the interval with the largest
difference, with the probability that chance makes any interval differ as much. CURVES is the folder of the published
curves.
"""

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from compare_with_published import RESULTS, SIGNIFICANCE_TESTS, uniform_curves
from published_settings import UNCOUNTED
from scipy.stats import mannwhitneyu, rankdata

from aes_rl.report.curves import Array
from aes_rl.report.reference import read_reference
from aes_rl.report.statistics import pooled_permutation_test, probability_of_improvement
from aes_rl.report.tables import markdown_row

Interval = tuple[int, int]
TENTHS: list[Interval] = [(start, start + 100_000) for start in range(0, 1_000_000, 100_000)]
HALVES: list[Interval] = [(0, 500_000), (500_000, 1_000_000)]
ALL: list[Interval] = [(0, 1_000_000)]
END = TENTHS[-1:]
BEHIND: list[Interval] = [(0, 300_000), (100_000, 300_000)]
"""Where DDPG on Hopper scored lower, chosen before the run with other masses was made."""
WALKING = TENTHS[3:6]
"""Where SAC on Walker2d walks and scores lower than the published runs."""
LIGHT_WALKERS = "settings/sac-walker2d-mujoco2-published,unfinished/sac-walker2d-mujoco2-published-tf32"
WALKERS = f"{LIGHT_WALKERS},unfinished/sac-walker2d-v4-published"

COMPARISONS: list[tuple[str, str, list[Interval]]] = [
    ("grid/halfcheetah-sac", "HalfCheetah-v3_sac.csv", HALVES + END),
    ("warm-up/halfcheetah-all", "HalfCheetah-v3_sac.csv", [(0, 120_000)]),
    (
        "settings/sac-halfcheetah-published",
        "HalfCheetah-v3_sac.csv",
        [(0, 500_000), (500_000, 650_000), (550_000, 650_000)],
    ),
    ("settings/sac-halfcheetah-published", "grid/halfcheetah-sac", [(0, 500_000), (500_000, 650_000)]),
    ("grid/hopper-sac", "Hopper-v3_sac.csv", HALVES + END),
    ("settings/sac-hopper-published", "grid/hopper-sac", HALVES + END),
    ("settings/sac-hopper-published", "Hopper-v3_sac.csv", [*HALVES, *END, (600_000, 900_000)]),
    ("unfinished/sac-hopper-v4-published-mujoco-3.4", "Hopper-v3_sac.csv", [(0, 500_000), (300_000, 560_000)]),
    (
        "unfinished/sac-hopper-v4-published-mujoco-3.4",
        "settings/sac-hopper-published",
        [(0, 500_000), (300_000, 560_000)],
    ),
    ("settings/sac-hopper-mujoco2-published", "Hopper-v3_sac.csv", [*HALVES, *END, *ALL, (600_000, 900_000)]),
    ("settings/sac-hopper-mujoco2-published", "settings/sac-hopper-published", HALVES + END + ALL),
    ("settings/sac-hopper-mujoco2-published", "unfinished/sac-hopper-v4-published-mujoco-3.4", HALVES[:1]),
    ("settings/sac-hopper-mujoco2-published", "grid/hopper-sac", HALVES + END),
    ("grid/walker2d-sac", "Walker2d-v3_sac.csv", HALVES + END),
    ("settings/sac-walker2d-v4-published", "Walker2d-v3_sac.csv", HALVES + END),
    ("settings/sac-walker2d-v4-published", "grid/walker2d-sac", HALVES + END),
    (
        "unfinished/sac-walker2d-v4-published",
        "Walker2d-v3_sac.csv",
        [(0, 500_000), *WALKING, (500_000, 620_000)],
    ),
    ("unfinished/sac-walker2d-v4-published", "grid/walker2d-sac", [(0, 500_000)]),
    ("unfinished/sac-walker2d-published", "Walker2d-v3_sac.csv", [(0, 270_000)]),
    ("unfinished/sac-walker2d-published", "unfinished/sac-walker2d-v4-published", [(0, 270_000)]),
    ("unfinished/sac-walker2d-published", "grid/walker2d-sac", [(0, 270_000)]),
    ("settings/sac-walker2d-mujoco2-published", "Walker2d-v3_sac.csv", TENTHS + HALVES + ALL),
    ("settings/sac-walker2d-mujoco2-published", "grid/walker2d-sac", HALVES + END),
    ("settings/sac-walker2d-mujoco2-published", "settings/sac-walker2d-v4-published", HALVES + END + ALL),
    ("settings/sac-walker2d-mujoco2-published", "unfinished/sac-walker2d-v4-published", HALVES[:1]),
    ("unfinished/sac-walker2d-mujoco2-published-tf32", "Walker2d-v3_sac.csv", HALVES[:1] + WALKING),
    (LIGHT_WALKERS, "Walker2d-v3_sac.csv", HALVES[:1] + WALKING),
    (LIGHT_WALKERS, "unfinished/sac-walker2d-v4-published", HALVES[:1]),
    (WALKERS, "Walker2d-v3_sac.csv", HALVES[:1] + WALKING),
    ("grid/reacher-sac", "Reacher-v2_sac.csv", HALVES + END),
    ("settings/sac-reacher-v4-published", "Reacher-v2_sac.csv", HALVES + END),
    ("settings/sac-reacher-undiscounted-cpu", "Reacher-v2_sac.csv", [(50_000, 100_000)]),
    ("settings/sac-reacher-undiscounted-cpu", "settings/sac-reacher-v4-published", [(50_000, 100_000)]),
    ("grid/inverteddoublependulum-sac", "InvertedDoublePendulum-v2_sac.csv", [(100_000, 300_000), (200_000, 300_000)]),
    (
        "settings/sac-inverteddoublependulum-published",
        "InvertedDoublePendulum-v2_sac.csv",
        [(100_000, 300_000), (200_000, 300_000)],
    ),
    ("grid/invertedpendulum-sac", "InvertedPendulum-v2_sac.csv", [(0, 30_000), (200_000, 300_000)]),
    ("settings/sac-invertedpendulum-published-cpu", "InvertedPendulum-v2_sac.csv", [(0, 30_000)]),
    ("grid/halfcheetah-ddpg", "HalfCheetah-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-halfcheetah-warm-up", "HalfCheetah-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-halfcheetah-published", "HalfCheetah-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-halfcheetah-published-action-first", "HalfCheetah-v3_ddpg.csv", TENTHS + HALVES),
    (
        "settings/ddpg-halfcheetah-published-action-first",
        "settings/ddpg-halfcheetah-published",
        [(35_000, 60_000), *HALVES, *END],
    ),
    (
        "settings/ddpg-halfcheetah-published-action-first-cpu",
        "settings/ddpg-halfcheetah-published-action-later-cpu",
        [(35_000, 60_000)],
    ),
    (
        "settings/ddpg-halfcheetah-published-critic-first",
        "settings/ddpg-halfcheetah-published-action-first",
        [(35_000, 130_000)],
    ),
    ("grid/hopper-ddpg", "Hopper-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-hopper-warm-up", "Hopper-v3_ddpg.csv", [*HALVES[:1], (830_000, 930_000)]),
    ("settings/ddpg-hopper-published", "Hopper-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-hopper-published-action-first", "settings/ddpg-hopper-published", HALVES + END),
    ("settings/ddpg-hopper-published-action-first", "Hopper-v3_ddpg.csv", HALVES + END),
    ("settings/ddpg-hopper-v4-published-critic-first", "Hopper-v3_ddpg.csv", [*BEHIND, *HALVES, *END]),
    ("unfinished/ddpg-hopper-v4-published-mujoco-3.4", "Hopper-v3_ddpg.csv", HALVES[:1]),
    ("unfinished/ddpg-hopper-v4-published-mujoco-3.4", "settings/ddpg-hopper-v4-published-critic-first", HALVES[:1]),
    ("settings/ddpg-hopper-mujoco2-published", "Hopper-v3_ddpg.csv", BEHIND + TENTHS + HALVES + ALL),
    (
        "settings/ddpg-hopper-mujoco2-published",
        "settings/ddpg-hopper-v4-published-critic-first",
        [*BEHIND, *HALVES, *END, *ALL],
    ),
    ("settings/ddpg-hopper-mujoco2-published-cpu", "Hopper-v3_ddpg.csv", BEHIND),
    ("settings/ddpg-hopper-mujoco2-published-cpu", "settings/ddpg-hopper-v4-published-critic-first", BEHIND),
    ("settings/ddpg-hopper-mujoco2-published-cpu", "unfinished/ddpg-hopper-v4-published-mujoco-3.4", BEHIND),
]
"""Which runs, beside which, over which steps."""

PUBLISHED_CURVES = ["Hopper-v3_ddpg.csv", "Hopper-v3_sac.csv", "Walker2d-v3_sac.csv"]
"""Of tasks whose models were lighter when these curves were made."""
TODAY = [
    "settings/ddpg-hopper-v4-published-critic-first",
    "settings/sac-hopper-published",
    "settings/sac-walker2d-v4-published",
]
TODAY_EARLY = [*TODAY[:2], "unfinished/sac-walker2d-v4-published"]
"""With more seeds."""
LIGHT = [
    "settings/ddpg-hopper-mujoco2-published",
    "settings/sac-hopper-mujoco2-published",
    "settings/sac-walker2d-mujoco2-published",
]
CHEETAHS = ["settings/ddpg-halfcheetah-published-action-first", "settings/sac-halfcheetah-published"]
CHEETAHS_PUBLISHED = ["HalfCheetah-v3_ddpg.csv", "HalfCheetah-v3_sac.csv"]
FIVE_CURVES = PUBLISHED_CURVES + CHEETAHS_PUBLISHED
TOGETHER: list[tuple[str, list[str], str, list[str], list[Interval]]] = [
    ("current models", TODAY_EARLY, "published", PUBLISHED_CURVES, HALVES[:1]),
    ("current models", TODAY, "published", PUBLISHED_CURVES, HALVES[1:] + END + ALL),
    ("MuJoCo 2.0 models", LIGHT, "published", PUBLISHED_CURVES, HALVES + END + ALL),
    ("MuJoCo 2.0 models", LIGHT, "current models", TODAY_EARLY, HALVES[:1]),
    ("MuJoCo 2.0 models", LIGHT, "current models", TODAY, HALVES[1:] + END + ALL),
    ("HalfCheetah", CHEETAHS, "published", CHEETAHS_PUBLISHED, [*HALVES[:1], (500_000, 650_000)]),
    ("five cells", LIGHT + CHEETAHS, "published", FIVE_CURVES, [*HALVES[:1], (500_000, 650_000)]),
    ("four cells", LIGHT + CHEETAHS[:1], "published", FIVE_CURVES[:4], HALVES[1:] + END + ALL),
]
"""Cells with the published settings taken together: their names, and over which steps."""
ANYWHERE: list[tuple[str, list[str], str, list[str], list[Interval]]] = [
    (f"five cells{more}", [*LIGHT[:2], walkers, *CHEETAHS], "published", FIVE_CURVES, TENTHS)
    for more, walkers in [
        ("", LIGHT[2]),
        (" with 20 runs of Walker2d", LIGHT_WALKERS),
        (" with 30 runs of Walker2d", WALKERS),
    ]
]
"""Where the tenth that differs most was looked for."""
SHUFFLES = 4000

Curves = list[tuple[Array, Array]]
"""Steps and scores of each seed."""


class Line(NamedTuple):
    """One comparison over one interval of steps."""

    cell: str
    """Its agent and task."""
    first: str
    second: str
    start: int
    stop: int
    own: Array
    """Each seed's mean."""
    other: Array
    higher: float
    """How often a run of the first beats one of the second."""
    p: float

    def row(self) -> dict[str, Any]:
        """As the table has it."""
        means = [f"{side.mean():.5g}" if len(side) else "" for side in (self.own, self.other)]
        inside = ((self.own >= self.other.min()) & (self.own <= self.other.max())).sum() if len(self.own) else ""
        return {
            "cell": self.cell,
            "first": self.first,
            "second": self.second,
            "start": self.start,
            "stop": self.stop,
            "seeds": len(self.own) or "",
            "mean": means[0],
            "other_seeds": len(self.other) or "",
            "other_mean": means[1],
            "inside": inside,
            "higher": f"{self.higher:.2f}",
            "p": f"{self.p:.3f}" if self.p >= 0.001 else f"{self.p:.1g}",
        }


def compare(pairs: Sequence[tuple[str, str]], intervals: list[Interval], folders: list[Path]) -> Iterator[Line]:
    """A line for each interval and pair that both sides of have evaluations in, and one for several together."""
    both = [(first, second, *_both(first, second, folders)) for first, second in pairs]
    for interval in intervals:
        lines = [line for one in both if (line := _line(*one, *interval))]
        yield from lines
        if len(lines) > 1:
            cells = "; ".join(line.cell for line in lines)
            higher = float(np.mean([line.higher for line in lines]))
            p = pooled_permutation_test([(line.own, line.other) for line in lines])
            nobody: Array = np.zeros(0)
            yield Line(cells, "together", "", *interval, nobody, nobody, higher, p)


def together(
    first: str, runs: list[str], second: str, others: list[str], intervals: list[Interval], folders: list[Path]
) -> Iterator[Line]:
    """The line for several cells, under a name for either side."""
    for line in compare(list(zip(runs, others, strict=True)), intervals, folders):
        if line.first == "together":
            yield line._replace(first=f"together, {first}", second=second)


def anywhere(
    first: str, runs: list[str], second: str, others: list[str], intervals: list[Interval], folders: list[Path]
) -> Line:
    """The line of the cell and interval that differ most, its p how often chance makes any of them differ as much.

    Curves change sides whole and within their cell, since what one seed does in one interval it may do in the next.
    """
    cells = [list(compare([pair], intervals, folders)) for pair in zip(runs, others, strict=True)]
    ranks = [rankdata([np.append(line.own, line.other) for line in lines], axis=1) for lines in cells]
    sizes = [len(lines[0].own) for lines in cells]
    found = [_rank_difference(each, size) for each, size in zip(ranks, sizes, strict=True)]
    cell = max(range(len(cells)), key=lambda number: found[number].max())
    largest = found[cell].max()
    generator, as_large = np.random.default_rng(0), 1
    for _ in range(SHUFFLES):
        shuffled = (generator.permutation(each, axis=1) for each in ranks)
        as_large += any(_rank_difference(*one).max() >= largest - 1e-9 for one in zip(shuffled, sizes, strict=True))
    line = cells[cell][int(found[cell].argmax())]
    return line._replace(first=f"anywhere, {first}", second=second, p=as_large / (SHUFFLES + 1))


def _rank_difference(ranks: Array, size: int) -> Array:
    """Of each interval, by how many standard deviations the ranks of so many first curves are from chance's."""
    every = ranks.shape[1]
    spread = np.sqrt(size * (every - size) * (every + 1) / 12)
    difference: Array = np.abs(ranks[:, :size].sum(axis=1) - size * (every + 1) / 2) / spread
    return difference


def _line(first: str, second: str, cell: str, ours: Curves, theirs: Curves, start: int, stop: int) -> Line | None:
    shared = _shared(ours, theirs)
    within = shared[(shared > start) & (shared <= stop)]
    if len(within) == 0 or stop > shared[-1]:
        return None
    own, other = (
        np.array([scores[np.isin(steps, within)].mean() for steps, scores in side]) for side in (ours, theirs)
    )
    higher = probability_of_improvement(own[:, None], other[:, None])
    begin = max(start, _first(ours, theirs))
    return Line(cell, first, second, begin, stop, own, other, higher, float(mannwhitneyu(own, other).pvalue))


def _shared(ours: Curves, theirs: Curves) -> Array:
    """Steps at which every seed of both sides was evaluated, after the first evaluation of either."""
    shared = ours[0][0]
    for steps, _ in ours + theirs:
        shared = np.intersect1d(shared, steps)
    return shared[shared > _first(ours, theirs)]


def _first(ours: Curves, theirs: Curves) -> int:
    """First evaluations do not count: that of published curves is of an agent that has not learned yet."""
    return max(int(steps[0]) for steps, _ in ours + theirs)


def _both(first: str, second: str, folders: list[Path]) -> tuple[str, Curves, Curves]:
    """Agent and task, which must be one, and the curves of both sides."""
    sides, cells = [], set()
    for names in (first, second):
        side: Curves = []
        for name in names.split(","):
            path = next((folder / name for folder in folders if (folder / name).exists()), Path(name))
            found = _published(path) if path.is_file() else _uniform(path)
            if not found:
                raise SystemExit(f"{path} has no curves of uniform replay")
            cells |= set(found)
            side += [curve for curves in found.values() for curve in curves]
        sides.append(side)
    if len(cells) > 1:
        raise SystemExit(f"{first} and {second} are of different cells: {sorted(cells)}")
    ((task, agent),) = cells
    return f"{agent.upper()}, {task}", sides[0], sides[1]


def _published(path: Path) -> dict[tuple[str, str], Curves]:
    published = read_reference(path, "published")
    if published.agent not in UNCOUNTED:
        raise SystemExit(f"{path} is of {published.agent}, whose random steps are not known; known: {list(UNCOUNTED)}")
    steps = published.steps + UNCOUNTED[published.agent]
    return {(published.task, published.agent): [(steps, scores) for scores in published.scores]}


def _uniform(path: Path) -> dict[tuple[str, str], Curves]:
    return {cell: [(curve.steps, curve.scores) for curve in curves] for cell, curves in uniform_curves(path).items()}


def write(curves: Path) -> None:
    """Make every comparison."""
    folders = [RESULTS, curves]
    made = [line for first, second, intervals in COMPARISONS for line in compare([(first, second)], intervals, folders)]
    made += [line for group in TOGETHER for line in together(*group, folders)]
    made += [anywhere(*group, folders) for group in ANYWHERE]
    rows = [line.row() for line in made]
    for row in rows:
        row["second"] = re.sub(r".*_(sac|ddpg)\.csv$", "published", row["second"])
    with SIGNIFICANCE_TESTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(argv: list[str]) -> None:
    """Write the table of a file of curves, or print the comparison of pairs of files."""
    paths = [item for item in argv if not re.fullmatch(r"\d+-\d+", item)]
    ranges = [(int(start), int(stop)) for item in argv if item not in paths for start, stop in [item.split("-")]]
    if len(paths) == 1:
        write(Path(paths[0]))
    elif paths and len(paths) % 2 == 0:
        pairs = list(zip(paths[::2], paths[1::2], strict=True))
        for number, line in enumerate(compare(pairs, ranges or TENTHS + HALVES + ALL, [])):
            row = line.row()
            if number == 0:
                print(markdown_row(list(row)), markdown_row(["---"] * len(row)), sep="\n")
            print(markdown_row([str(value) for value in row.values()]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
