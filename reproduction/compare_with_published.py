"""Comparison of uniform replay with published runs.

python reproduction/compare_with_published.py            writes docs/results/published.md and its figure from results
python reproduction/compare_with_published.py --print    prints the page
python reproduction/compare_with_published.py FROM TO    summarises published curves, FROM/TASK-vN_AGENT.csv, in a
                                                         table such as results/published.csv
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from published_settings import PUBLISHED, UNCOUNTED, described, differences

from aes_rl import paper
from aes_rl.report import figures
from aes_rl.report.curves import Array, Curve
from aes_rl.report.load import load
from aes_rl.report.reference import read_reference
from aes_rl.report.tables import markdown_row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SUMMARY, SIGNIFICANCE_TESTS = RESULTS / "published.csv", RESULTS / "significance_tests.csv"
GRID, SETTINGS = RESULTS / "grid", RESULTS / "settings"
PAGE = ROOT / "docs" / "results" / "published.md"
FIGURE = PAGE.parent / "figures" / "published.png"
DRAWN = range(150_000, 1_000_001, 50_000)
"""Steps in the figure."""
STEPS = sorted({*range(10_000, 300_001, 10_000), *DRAWN, 930_000})
SPAN = 100_000
"""Steps whose evaluations' mean is a final score: ten evaluations here, twenty of the published runs."""


class Range(NamedTuple):
    """Scores of some seeds."""

    seeds: int
    lowest: float
    mean: float
    highest: float

    def __str__(self) -> str:
        digits = 1 if max(abs(self.lowest), abs(self.highest)) < 20 else 0
        lowest, mean, highest = (_number(score, digits) for score in self[1:])
        return mean if self.seeds == 1 else f"{lowest} to {highest} (mean {mean})"

    def has(self, score: float) -> bool:
        """Whether a score is between the lowest and the highest."""
        return self.lowest <= score <= self.highest


Summary = dict[tuple[str, str, int, str], Range]
"""By task, agent, step and reading."""
Uniform = dict[tuple[str, str], list[Curve]]
"""The seeds of uniform replay, by task (without its version) and agent."""


def summarise(directory: Path, target: Path) -> None:
    """The range over seeds at some steps, of single evaluations and of means over the last 100,000 steps."""
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "agent", "env_step", "reading", *Range._fields])
        for path in sorted(directory.glob("*.csv")):
            curve = read_reference(path, "published")
            if curve.task not in paper.TASKS or curve.agent not in PUBLISHED:
                continue
            for step in STEPS:
                for reading, scores in _readings(curve.steps + UNCOUNTED[curve.agent], curve.scores, step):
                    numbers = [f"{value:.6g}" for value in _range(scores)]
                    writer.writerow([curve.task, curve.agent, step, reading, *numbers])


def page() -> str:
    """Both tables, as Markdown."""
    published = _summary()
    as_published = [f"- {agent.upper()}: {differences(agent)}." for agent in PUBLISHED]
    lines = [
        "# Uniform replay beside published runs",
        "",
        "Made by `make results`. Published: ten seeds, Tianshou's benchmark, v3 tasks (Reacher and pendulums: v2). Its "
        "curves leave out the random steps before training (10,000 for SAC, 25,000 for DDPG); here they are counted on "
        "both sides.",
        "",
        "As here: [DDPG](../agents/ddpg.md) and [SAC](../agents/sac.md) as they are by default. DDPG took 1,000 random "
        "steps when the grid was trained, and takes 25,000 today. As published:",
        "",
        *as_published,
        "",
        "## At the end",
        "",
        "Mean over the last 100,000 steps of each seed (ten evaluations here, twenty there), lowest to highest seed; "
        "how many of our seeds are between the lowest and highest published one. And on the way: in how many of such "
        "spans, from that which ends at 200,000 on, the average of our seeds is.",
        "",
        "| task | agent | settings | device | steps | here | published | of ours inside | average inside |",
        "|---|---|---|---|---|---|---|---|---|",
        *_final_lines(published),
        "",
        "## On the way",
        "",
        "Such means on the way: average of the seeds, and from the lowest to the highest, where other settings were "
        "tried to the end.",
        "",
        f"![uniform replay beside published runs](figures/{FIGURE.name})",
        "",
        "Single evaluations, at 100,000 steps and at the last:",
        "",
        "| task | agent | settings | device | steps | seeds | here | published |",
        "|---|---|---|---|---|---|---|---|",
        *_settings_lines(published),
        "",
        "## Significance tests",
        "",
        "From `results/significance_tests.csv`, which `reproduction/significance_tests.py` computes; it needs the "
        "published curves. The score of a seed is its mean over the evaluations at steps that both sides have, after "
        "the first step and up to the last. The table shows the mean of both sides, how many seeds of the first side "
        "are within the range of the second, the probability that a run of the first side scores higher than one of "
        "the second, and the p-value of the Mann–Whitney test; for several cells together, of a permutation test "
        "within cells. 'Anywhere' is the tenth of the run with the largest difference in several cells; its p-value "
        "is the probability that chance makes any of their tenths differ as much. "
        "[Interpretation](deviations.md).",
        "",
        "| cell | runs | beside | steps | mean | mean beside | inside | higher | p |",
        "|---|---|---|---|---|---|---|---|---|",
        *_significance_lines(),
    ]
    return "\n".join(lines) + "\n"


def _final_lines(published: Summary) -> Iterator[str]:
    """The grid's own runs, and what was tried for half as long or longer."""
    tried = _tried()
    for (task, agent), curves in uniform_curves(GRID).items():
        half = int(curves[0].steps[-1]) // 2
        for folder in (_cell(task, agent), *_at_least_to(tried.get((task, agent), []), half)):
            own, config, step = uniform_curves(folder)[task, agent], _config(folder), _last_step(folder)
            theirs = _at(published, task, agent, step, "last_span")
            scores = _scores(own, step, SPAN)
            seeds = [theirs.has(score) for score in scores]
            spans = [
                _at(published, task, agent, end, "last_span").has(_scores(own, end, SPAN).mean())
                for end in range(2 * SPAN, step + 1, SPAN)
            ]
            shares = [f"{sum(inside)} of {len(inside)}" for inside in (seeds, spans)]
            cells = [described(config), _device(config), f"{step:,}", _range(scores), theirs, *shares]
            yield markdown_row([task, agent.upper(), *map(str, cells)])


@mpl.rc_context(figures.LOOK)
def figure() -> Figure:
    """Curves of the grid and of what was tried to the end, beside the published ones."""
    published, shown = _summary(), dict[str, Any]()
    styles = ({"color": colour, "linestyle": dashes} for dashes in ("-", "--") for colour in figures.COLOURS)
    tried = {cell: _at_least_to(folders, DRAWN[-1]) for cell, folders in _tried().items()}
    tried = {cell: [_cell(*cell), *folders] for cell, folders in tried.items() if folders}
    drawing, axes = figures.panels(len(tried))
    for axis, ((task, agent), folders) in zip(axes, tried.items(), strict=True):
        lines = {"published": [_at(published, task, agent, step, "last_span") for step in DRAWN]}
        for folder in folders:
            label = described(_config(folder))
            if label in lines:
                raise SystemExit(f"{folder} cannot be drawn: another run of {task} is {label!r} too")
            lines[label] = _ranges_at(DRAWN, uniform_curves(folder)[task, agent], SPAN)
        for label, points in lines.items():
            if label in shown:
                style = {"color": shown[label].get_color(), "linestyle": shown[label].get_linestyle()}
            else:
                style = {"color": "#222222"} if label == "published" else next(styles)
            (shown[label],) = axis.plot(DRAWN, [point.mean for point in points], **style)
            low, high = ([getattr(point, end) for point in points] for end in ("lowest", "highest"))
            axis.fill_between(DRAWN, low, high, color=shown[label].get_color(), alpha=0.15, linewidth=0)
        figures.label_steps(axis, f"{agent.upper()}, {task}", "test return")
    figures.legend_below(drawing, shown)
    return drawing


def _ranges_at(steps: Iterable[int], curves: list[Curve], span: int = 0) -> list[Range]:
    return [_range(_scores(curves, step, span)) for step in steps]


def _scores(curves: list[Curve], step: int, span: int) -> Array:
    """The mean of each curve's evaluations within so many steps up to one; by default that at the step alone."""
    within = [own.scores[(own.steps > step - max(span, 1)) & (own.steps <= step)] for own in curves]
    if not all(map(len, within)):
        raise SystemExit(f"{curves[0].task} {curves[0].agent} has no evaluation up to step {step}")
    return np.array([scores.mean() for scores in within])


def _settings_lines(published: Summary) -> Iterator[str]:
    """The grid's own runs at the steps of what was tried, and then that."""
    for (task, agent), folders in _tried().items():
        steps = {folder: _read_at(folder) for folder in folders}
        everywhere = sorted({step for own in steps.values() for step in own})
        for folder, own in {_cell(task, agent): everywhere, **steps}.items():
            config = _config(folder)
            for step in own:
                (ours,) = _ranges_at([step], uniform_curves(folder)[task, agent])
                theirs = _at(published, task, agent, step, "at")
                cells = [described(config), _device(config), f"{step:,}", ours.seeds, ours, theirs]
                yield markdown_row([task, agent.upper(), *map(str, cells)])


def _significance_lines() -> Iterator[str]:
    with SIGNIFICANCE_TESTS.open(newline="") as file:
        for row in csv.DictReader(file):
            names = [f"`{row[name]}`" if "/" in row[name] else row[name] for name in ("first", "second")]
            means = [row[name] and _number(float(row[name]), 2) for name in ("mean", "other_mean")]
            inside = row["seeds"] and f"{row['inside']} of {row['seeds']}"
            steps = f"{int(row['start']):,} to {int(row['stop']):,}"
            yield markdown_row([row["cell"], *names, steps, *means, inside, row["higher"], row["p"]])


def _number(score: float, digits: int) -> str:
    """With so many digits behind the point where it is small, else with none."""
    return f"{score:,.{digits if abs(score) < 20 else 0}f}".replace("-", "−")


def _tried() -> dict[tuple[str, str], list[Path]]:
    """Where other settings are, by task and agent."""
    tried: dict[tuple[str, str], list[Path]] = {}
    for folder in sorted(SETTINGS.iterdir()):
        ((cell, _),) = uniform_curves(folder).items()
        tried.setdefault(cell, []).append(folder)
    return tried


def _cell(task: str, agent: str) -> Path:
    return GRID / f"{task.lower()}-{agent}"


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(next(folder.rglob("config.json")).read_text())
    return config


def _device(config: dict[str, Any]) -> str:
    return f"{config['device']}{', TF32' if config['tf32'] else ''}"


def _at_least_to(folders: list[Path], step: int) -> list[Path]:
    return [folder for folder in folders if _last_step(folder) >= step]


def _last_step(folder: Path) -> int:
    """That all seeds have reached."""
    return min(int(curve.steps[-1]) for curves in uniform_curves(folder).values() for curve in curves)


def _read_at(folder: Path) -> list[int]:
    """100,000 steps, and the last."""
    last = _last_step(folder)
    return sorted({min(100_000, last), last})


def _readings(steps: Array, scores: Array, step: int) -> Iterator[tuple[str, Array]]:
    end = int(np.searchsorted(steps, step, side="right"))
    if end:
        yield "at", scores[:, end - 1]
    within = (steps > step - SPAN) & (steps <= step)
    if within.sum() * (steps[1] - steps[0]) == SPAN:
        yield "last_span", scores[:, within].mean(axis=1)


def _range(scores: Array) -> Range:
    return Range(len(scores), float(scores.min()), float(scores.mean()), float(scores.max()))


def _summary() -> Summary:
    with SUMMARY.open(newline="") as file:
        return {
            (row["task"], row["agent"], int(row["env_step"]), row["reading"]): Range(
                int(row["seeds"]), float(row["lowest"]), float(row["mean"]), float(row["highest"])
            )
            for row in csv.DictReader(file)
        }


def _at(published: Summary, task: str, agent: str, step: int, reading: str) -> Range:
    try:
        return published[task, agent, step, reading]
    except KeyError:
        raise SystemExit(
            f"{SUMMARY} has no {task} {agent} at step {step}; unless that is within the {UNCOUNTED[agent]:,} random "
            "steps, add it to STEPS and summarise again"
        ) from None


@cache
def uniform_curves(folder: Path) -> Uniform:
    """What there is of uniform replay in a folder."""
    found: Uniform = {}
    for curve in load(folder).curves:
        if curve.sampler == "uniform":
            found.setdefault((paper.name_of(curve.task), curve.agent), []).append(curve)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            PAGE.write_text(page())
            figure().savefig(FIGURE)
        case ["--print"]:
            print(page(), end="")
        case [directory, target]:
            summarise(Path(directory), Path(target))
        case _:
            raise SystemExit(__doc__)
