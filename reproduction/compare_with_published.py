"""Comparison of uniform replay with published runs.

python reproduction/compare_with_published.py            writes docs/results/published.md, published.csv and the figure
python reproduction/compare_with_published.py --print    prints the page
python reproduction/compare_with_published.py --csv      prints the table
python reproduction/compare_with_published.py FROM TO    summarises published curves, FROM/TASK-vN_AGENT.csv, in a
                                                         table such as results/published.csv
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
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
TABLE = PAGE.with_suffix(".csv")
FIGURE = PAGE.parent / "figures" / "published.svg"
LEVEL = 0.05
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
    """The page: a table of verdicts, the figure, and where all numbers are."""
    lines = [
        "# All comparisons with published runs",
        "",
        "<!-- Made by `make results` (reproduction/compare_with_published.py). Do not edit. -->",
        "",
        "Uniform replay of this package beside ten published seeds per cell (Tianshou's benchmark). What explains the "
        "differences is in [Deviations from published runs](deviations.md).",
        "",
        "## Verdicts",
        "",
        "Scores are means over the last 100,000 steps of a run (of 1,000,000 steps, 300,000 on the pendulums), at the "
        "steps at which both sides were evaluated. "
        "Inside: how many of our seeds are between the lowest and the highest published seed, and in how many "
        "intervals of 100,000 steps, from 100,000 on, the mean of our seeds is. The p-value is of the Mann–Whitney "
        "test; above 0.05 there is no significant difference. p-values are not corrected for the number of rows.",
        "",
        markdown_row(VERDICT_COLUMNS),
        markdown_row("---" for _ in VERDICT_COLUMNS),
        *_verdict_lines(),
        "",
        "Published settings that differ from our defaults:",
        "",
        *(f"- {agent.upper()}: {differences(agent)}." for agent in PUBLISHED),
        "",
        "Other differences from the published runs: they used v3 of the tasks (v2 of Reacher and the pendulums), which "
        "v5 replaces here unless stated, and their curves do not count the random steps before training (10,000 for "
        "SAC, 25,000 for DDPG), which are counted on both sides here. DDPG took 1,000 random steps in the grid and "
        "takes 25,000 by default since.",
        "",
        "## During training",
        "",
        f"![Uniform replay and published runs during training](figures/{FIGURE.name})",
        "",
        "Means over 100,000 steps: mean over seeds, and range from the lowest to the highest seed. Only runs of a "
        "million steps.",
        "",
        "## All numbers",
        "",
        f"- [`{TABLE.name}`]({TABLE.name}): scores of every setting that was tried, the last 100,000 steps and single "
        "evaluations, with the range of the published seeds. Ranges of published seeds there are over all their "
        "evaluations, twice as many as ours, so their means differ slightly from those above.",
        "- `results/significance_tests.csv`: every significance test, over halves and tenths of a run and of several "
        "cells together. `python reproduction/significance_tests.py CURVES` computes it from the published curves.",
        "- `results/published.csv`: the lowest, mean and highest published seed at some steps.",
    ]
    return "\n".join(lines) + "\n"


VERDICT_COLUMNS = ("cell: settings here", "verdict", "here against published", "seeds; means inside")


def _verdict_lines() -> Iterator[str]:
    published, tests = summary(), _tests()
    for task, agent, folder in _to_the_end():
        step = _last_step(folder)
        name = str(folder.relative_to(RESULTS))
        test = tests.get((name, step - SPAN, step))
        if test is None:
            raise SystemExit(f"{SIGNIFICANCE_TESTS} has no test of {name} from step {step - SPAN}; add it and run it")
        p = float(test["p"])
        verdict = "no significant difference" if p > LEVEL else "higher" if float(test["higher"]) > 0.5 else "lower"
        inside, spans = spans_inside(published, task, agent, folder)
        means = [_number(float(test[side]), 2) for side in ("mean", "other_mean")]
        until = "" if step in (300_000, 1_000_000) else f" (to {step:,})"
        yield markdown_row(
            [
                f"{agent.upper()}, {task}: {described(_config(folder))}{until}",
                f"{verdict} (p {test['p'] if p >= 0.001 else '< 0.001'})",
                f"{means[0]} against {means[1]}",
                f"{test['inside']} of {test['seeds']}; {inside} of {spans}",
            ]
        )


def _to_the_end() -> Iterator[tuple[str, str, Path]]:
    """Task, agent and folder of the grid's own runs, and of what was tried for half as long or longer."""
    tried = _tried()
    for (task, agent), curves in uniform_curves(GRID).items():
        half = int(curves[0].steps[-1]) // 2
        for folder in (_cell(task, agent), *_at_least_to(tried.get((task, agent), []), half)):
            yield task, agent, folder


def spans_inside(published: Summary, task: str, agent: str, folder: Path) -> tuple[int, int]:
    """In how many spans the mean of our seeds is in the published range, and how many there are."""
    own, last = uniform_curves(folder)[task, agent], _last_step(folder)
    ends = range(2 * SPAN, last + 1, SPAN)
    inside = [_at(published, task, agent, end, "last_span").has(scores_of(own, end, SPAN).mean()) for end in ends]
    return sum(inside), len(inside)


def table() -> str:
    """All scores beside the published range, as CSV."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    sides = [f"{side}{name}" for side in ("", "published_") for name in Range._fields]
    writer.writerow(["task", "agent", "folder", "settings", "device", "env_step", "reading", *sides])
    published = summary()
    for task, agent, folder in _to_the_end():
        step = _last_step(folder)
        _write_row(writer, published, task, agent, folder, step, "last_span")
    for (task, agent), folders in _tried().items():
        steps = {folder: _read_at(folder) for folder in folders}
        everywhere = sorted({step for own in steps.values() for step in own})
        for folder, own in {_cell(task, agent): everywhere, **steps}.items():
            for step in own:
                _write_row(writer, published, task, agent, folder, step, "at")
    return text.getvalue()


def _write_row(writer: Any, published: Summary, task: str, agent: str, folder: Path, step: int, reading: str) -> None:
    config = _config(folder)
    ours = _range(scores_of(uniform_curves(folder)[task, agent], step, SPAN if reading == "last_span" else 0))
    theirs = _at(published, task, agent, step, reading)
    names = [task, agent, folder.relative_to(RESULTS), described(config), _device(config), step, reading]
    writer.writerow([*names, *(f"{value:.6g}" for side in (ours, theirs) for value in side)])


@mpl.rc_context(figures.LOOK)
def figure() -> Figure:
    """Curves of the grid and of what was tried to the end, beside the published ones."""
    published, shown = summary(), dict[str, Any]()
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
    figures.legend_below(drawing, shown, 1)
    return drawing


def _ranges_at(steps: Iterable[int], curves: list[Curve], span: int) -> list[Range]:
    return [_range(scores_of(curves, step, span)) for step in steps]


def scores_of(curves: list[Curve], step: int, span: int) -> Array:
    """The mean of each curve's evaluations within so many steps up to one; by default that at the step alone."""
    within = [own.scores[(own.steps > step - max(span, 1)) & (own.steps <= step)] for own in curves]
    if not all(map(len, within)):
        raise SystemExit(f"{curves[0].task} {curves[0].agent} has no evaluation up to step {step}")
    return np.array([scores.mean() for scores in within])


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


def summary() -> Summary:
    """The published runs at some steps."""
    with SUMMARY.open(newline="") as file:
        return {
            (row["task"], row["agent"], int(row["env_step"]), row["reading"]): Range(
                int(row["seeds"]), float(row["lowest"]), float(row["mean"]), float(row["highest"])
            )
            for row in csv.DictReader(file)
        }


def _tests() -> dict[tuple[str, int, int], dict[str, str]]:
    """The tests against the published runs, by folder and steps."""
    with SIGNIFICANCE_TESTS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["second"] == "published"]
    return {(row["first"], int(row["start"]), int(row["stop"])): row for row in rows}


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
            TABLE.write_text(table())
            with mpl.rc_context(figures.LOOK):  # the identifiers in the file depend on it
                figure().savefig(FIGURE, bbox_inches="tight", metadata={"Date": None})
        case ["--print"]:
            print(page(), end="")
        case ["--csv"]:
            print(table(), end="")
        case [directory, target]:
            summarise(Path(directory), Path(target))
        case _:
            raise SystemExit(__doc__)
