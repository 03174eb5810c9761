"""Uniform replay beside published runs.

python scripts/published.py          writes docs/results/published.md from results; with --print, prints it
python scripts/published.py FROM TO  summarises published curves, FROM/TASK-vN_AGENT.csv, in a table such as
                                     results/published.csv
"""

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aes_rl import paper
from aes_rl.agents import DDPG, SAC
from aes_rl.report.load import Array, Curve, load
from aes_rl.report.reference import read_reference

ROOT = Path(__file__).parents[1]
SUMMARY = ROOT / "results" / "published.csv"
PAGE = ROOT / "docs" / "results" / "published.md"
STEPS = (*range(20_000, 300_000, 20_000), 300_000, 1_000_000)
AGENTS = {"sac": SAC, "ddpg": DDPG}
LAST = 10
"""Evaluations whose mean is a final score."""


class Range(NamedTuple):
    """Scores of some seeds."""

    seeds: int
    lowest: float
    mean: float
    highest: float

    def __str__(self) -> str:
        digits = 1 if abs(self.highest) < 100 else 0
        if self.seeds == 1:
            return f"{self.mean:,.{digits}f}"
        return f"{self.lowest:,.{digits}f} to {self.highest:,.{digits}f} (mean {self.mean:,.{digits}f})"


def summarise(directory: Path, target: Path) -> None:
    """The range over seeds at some steps, of single evaluations and of the mean of the last ten."""
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "agent", "env_step", "reading", *Range._fields])
        for path in sorted(directory.glob("*.csv")):
            curve = read_reference(path, "published")
            if curve.task not in paper.TASKS or curve.agent not in AGENTS:
                continue
            for step in STEPS:
                for reading, scores in _readings(curve.steps, curve.scores, step):
                    numbers = [f"{value:.6g}" for value in _range(scores)]
                    writer.writerow([curve.task, curve.agent, step, reading, *numbers])


def page() -> str:
    """Both tables, as Markdown."""
    published = _summary()
    lines = [
        "# Uniform replay beside published runs",
        "",
        "Made by `make results`. Final: mean of the last ten evaluations of each seed (every 10,000 steps here, every "
        "5,000 there), lowest to highest seed. Published: ten seeds, Tianshou's benchmark, v3 tasks (v2 of Reacher and "
        "the pendulums).",
        "",
        "## The grid",
        "",
        "| task | agent | steps | here | published | of ours inside |",
        "|---|---|---|---|---|---|",
    ]
    for (task, agent), curves in _uniform(ROOT / "results" / "grid").items():
        step, scores = _ends(curves)
        theirs = published[task, agent, min((s for s in STEPS if s >= step), default=STEPS[-1]), "last_ten"]
        inside = ((scores >= theirs.lowest) & (scores <= theirs.highest)).sum()
        lines.append(
            f"| {task} | {agent.upper()} | {step:,} | {_range(scores)} | {theirs} | {inside} of {len(scores)} |"
        )
    lines += [
        "",
        "## Other settings",
        "",
        "Uniform replay; scores of single evaluations, at 100,000 steps and at the last step.",
        "",
        "| task | agent | what differs from the defaults | steps | seeds | here | published |",
        "|---|---|---|---|---|---|---|",
    ]
    for folder in sorted((ROOT / "results" / "settings").iterdir()):
        config = json.loads(next(folder.rglob("config.json")).read_text())
        ((task, agent), curves) = next(iter(_uniform(folder).items()))
        for step in sorted({100_000, int(curves[0].steps[-1])}):
            scores = np.array([curve.scores[curve.steps == step][0] for curve in curves])
            lines.append(
                f"| {task} | {agent.upper()} | {_differences(config)} | {step:,} | {len(scores)} | {_range(scores)} "
                f"| {published[task, agent, step, 'at']} |"
            )
    return "\n".join(lines) + "\n"


def _readings(steps: Array, scores: Array, step: int) -> Iterator[tuple[str, Array]]:
    end = int(np.searchsorted(steps, step, side="right"))
    yield "at", scores[:, end - 1]
    if end >= LAST:
        yield "last_ten", scores[:, end - LAST : end].mean(axis=1)


def _range(scores: Array) -> Range:
    return Range(len(scores), float(scores.min()), float(scores.mean()), float(scores.max()))


def _summary() -> dict[tuple[str, str, int, str], Range]:
    with SUMMARY.open(newline="") as file:
        return {
            (row["task"], row["agent"], int(row["env_step"]), row["reading"]): Range(
                int(row["seeds"]), float(row["lowest"]), float(row["mean"]), float(row["highest"])
            )
            for row in csv.DictReader(file)
        }


def _uniform(folder: Path) -> dict[tuple[str, str], list[Curve]]:
    """The seeds of uniform replay, by task (without its version) and agent."""
    found: dict[tuple[str, str], list[Curve]] = {}
    for curve in load(folder).curves:
        if curve.sampler == "uniform":
            found.setdefault((curve.task.split("-")[0], curve.agent), []).append(curve)
    return found


def _ends(curves: list[Curve]) -> tuple[int, Array]:
    return int(curves[0].steps[-1]), np.array([curve.scores[-LAST:].mean() for curve in curves])


def _differences(config: dict[str, object]) -> str:
    """The agent's options that are not the defaults."""
    agent = str(config["agent"])
    own = json.loads(json.dumps(config[agent]))
    defaults = json.loads(json.dumps(asdict(AGENTS[agent]())))
    changed = [f"{name} {value}" for name, value in own.items() if value != defaults[name]]
    return ", ".join(changed).replace("_", " ") or "nothing"


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
