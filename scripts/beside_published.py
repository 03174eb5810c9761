"""Uniform replay beside published runs.

python scripts/beside_published.py          writes docs/results/published.md from results; with --print, prints it
python scripts/beside_published.py FROM TO  summarises published curves, FROM/TASK-vN_AGENT.csv, in a table such as
                                     results/published.csv
"""

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aes_rl import paper
from aes_rl.agents import DDPG, SAC
from aes_rl.report.load import Array, Curve, load
from aes_rl.report.reference import read_reference
from aes_rl.report.tables import markdown_row

ROOT = Path(__file__).parents[1]
SUMMARY = ROOT / "results" / "published.csv"
GRID, SETTINGS = ROOT / "results" / "grid", ROOT / "results" / "settings"
PAGE = ROOT / "docs" / "results" / "published.md"
STEPS = (*range(10_000, 300_000, 10_000), 300_000, 980_000, 1_000_000)
DEFAULTS: dict[str, SAC | DDPG] = {"sac": SAC(), "ddpg": DDPG()}
PUBLISHED: dict[str, SAC | DDPG] = {
    "sac": SAC(learning_rate=1e-3, entropy_tuning=False, initial_entropy_coefficient=0.2),
    "ddpg": DDPG(
        hidden=(256, 256),
        actor_learning_rate=1e-3,
        critic_weight_decay=0.0,
        target_rate=0.005,
        noise_pull=1.0,
        noise_scale=0.1,
        last_layer_bound=0.0625,
        batch_size=256,
        warm_up_steps=25_000,
    ),
}
"""The settings of the published runs, as far as they are options here."""
UNCOUNTED = {"sac": 10_000, "ddpg": 25_000}
"""Random steps before the first update, which the steps of the published curves leave out and ours count."""
LAST = 10
"""Evaluations whose mean is a final score."""


class Range(NamedTuple):
    """Scores of some seeds."""

    seeds: int
    lowest: float
    mean: float
    highest: float

    def __str__(self) -> str:
        digits = 1 if max(abs(self.lowest), abs(self.highest)) < 20 else 0
        if self.seeds == 1:
            return f"{self.mean:,.{digits}f}".replace("-", "−")
        text = f"{self.lowest:,.{digits}f} to {self.highest:,.{digits}f} (mean {self.mean:,.{digits}f})"
        return text.replace("-", "−")


Summary = dict[tuple[str, str, int, str], Range]
"""By task, agent, step and reading."""
Uniform = dict[tuple[str, str], list[Curve]]
"""The seeds of uniform replay, by task (without its version) and agent."""


def summarise(directory: Path, target: Path) -> None:
    """The range over seeds at some steps, of single evaluations and of the mean of the last ten."""
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "agent", "env_step", "reading", *Range._fields])
        for path in sorted(directory.glob("*.csv")):
            curve = read_reference(path, "published")
            if curve.task not in paper.TASKS or curve.agent not in DEFAULTS:
                continue
            for step in STEPS:
                for reading, scores in _readings(curve.steps + UNCOUNTED[curve.agent], curve.scores, step):
                    numbers = [f"{value:.6g}" for value in _range(scores)]
                    writer.writerow([curve.task, curve.agent, step, reading, *numbers])


def page() -> str:
    """Both tables, as Markdown."""
    published = _summary()
    as_published = [
        f"- {agent.upper()}: {_listed(_changes(_options(settings), DEFAULTS[agent]))}."
        for agent, settings in PUBLISHED.items()
    ]
    lines = [
        "# Uniform replay beside published runs",
        "",
        "Made by `make results`. Published: ten seeds, Tianshou's benchmark, v3 tasks (Reacher and pendulums: v2). Its "
        "curves leave out the random steps before training (10,000 for SAC, 25,000 for DDPG); here they are counted on "
        "both sides.",
        "",
        "## The grid",
        "",
        "Mean of the last ten evaluations of each seed (every 10,000 steps here, every 5,000 there), lowest to highest "
        "seed.",
        "",
        "| task | agent | steps | here | published | of ours inside |",
        "|---|---|---|---|---|---|",
        *_grid_lines(published),
        "",
        "## Other settings",
        "",
        "Single evaluations, at 100,000 steps and at the last. As here: [DDPG](../agents/ddpg.md) and "
        "[SAC](../agents/sac.md) as they are by default. As published:",
        "",
        *as_published,
        "",
        "| task | agent | settings | device | steps | seeds | here | published |",
        "|---|---|---|---|---|---|---|---|",
        *_settings_lines(published),
    ]
    return "\n".join(lines) + "\n"


def _grid_lines(published: Summary) -> Iterator[str]:
    for (task, agent), curves in _uniform(GRID).items():
        step = int(curves[0].steps[-1])
        scores = np.array([curve.scores[-LAST:].mean() for curve in curves])
        theirs = _at(published, task, agent, step, "last_ten")
        inside = ((scores >= theirs.lowest) & (scores <= theirs.highest)).sum()
        yield markdown_row(
            [task, agent.upper(), f"{step:,}", str(_range(scores)), str(theirs), f"{inside} of {len(scores)}"]
        )


def _settings_lines(published: Summary) -> Iterator[str]:
    """The grid's own runs at the steps of what was tried, and then that."""
    tried: dict[tuple[str, str], list[Path]] = {}
    for folder in sorted(SETTINGS.iterdir()):
        ((cell, _),) = _uniform(folder).items()
        tried.setdefault(cell, []).append(folder)
    for (task, agent), folders in tried.items():
        steps = {folder: _read_at(folder) for folder in folders}
        everywhere = sorted({step for own in steps.values() for step in own})
        for folder, own in {GRID / f"{task.lower()}-{agent}": everywhere, **steps}.items():
            config = json.loads(next(folder.rglob("config.json")).read_text())
            for step in own:
                scores = np.array([c.scores[c.steps == step][0] for c in _uniform(folder)[task, agent]])
                theirs = _at(published, task, agent, step, "at")
                cells = [_described(config), config["device"], f"{step:,}", len(scores), _range(scores), theirs]
                yield markdown_row([task, agent.upper(), *map(str, cells)])


def _read_at(folder: Path) -> list[int]:
    """100,000 steps, and the last that all seeds have reached."""
    last = min(int(curve.steps[-1]) for curves in _uniform(folder).values() for curve in curves)
    return sorted({min(100_000, last), last})


def _readings(steps: Array, scores: Array, step: int) -> Iterator[tuple[str, Array]]:
    end = int(np.searchsorted(steps, step, side="right"))
    if end:
        yield "at", scores[:, end - 1]
    if end >= LAST:
        yield "last_ten", scores[:, end - LAST : end].mean(axis=1)


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


def _uniform(folder: Path) -> Uniform:
    found: Uniform = {}
    for curve in load(folder).curves:
        if curve.sampler == "uniform":
            found.setdefault((paper.name_of(curve.task), curve.agent), []).append(curve)
    return found


def _described(config: dict[str, Any]) -> str:
    """Options by what differs from the defaults or from the published settings, whichever is less; an older task."""
    version = str(config["task"]).rpartition("-")[2]
    older = "" if version == "v5" else f", {version} of the task"
    return _options_described(config) + older


def _options_described(config: dict[str, Any]) -> str:
    agent = str(config["agent"])
    default, published = _changes(config[agent], DEFAULTS[agent]), _changes(config[agent], PUBLISHED[agent])
    if not published:
        return "as published"
    if len(published) < len(default):
        return f"as published but {_listed(published)}"
    return f"as here but {_listed(default)}" if default else "as here"


def _changes(options: dict[str, Any], base: SAC | DDPG) -> dict[str, Any]:
    before = _options(base)
    return {name: value for name, value in options.items() if value != before[name]}


def _options(agent: SAC | DDPG) -> dict[str, Any]:
    """As a configuration file has them."""
    options: dict[str, Any] = json.loads(json.dumps(asdict(agent)))
    return options


def _listed(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changes.items())


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            PAGE.write_text(page())
        case ["--print"]:
            print(page(), end="")
        case [directory, target]:
            summarise(Path(directory), Path(target))
        case _:
            raise SystemExit(__doc__)
