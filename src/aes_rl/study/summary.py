"""The table at the end of a study: what every sampler reached, and how much gradient variance it removed."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aes_rl.study.grid import RunGroup
from aes_rl.training import run_files

_RETURN = "mean return: in the last evaluation, mean over the seeds (lowest to highest seed)"
_CAPTURED = (
    "captured fraction: share of the removable gradient variance that the sampler removed, over the second half of "
    "training; 0 is uniform replay, 1 the best distribution, below 0 it added variance"
)


class Line(NamedTuple):
    """One sampler on one task, with one number per seed."""

    task: str
    agent: str
    sampler: str
    returns: list[float]
    captured: list[float]
    """Empty if the captured fraction was not measured."""


def lines(groups: Sequence[RunGroup], directory: Path) -> list[Line]:
    """A line per task, agent and sampler, over the seeds of the groups that are finished."""
    found: dict[tuple[str, str, str], Line] = {}
    for group in groups:
        own = directory / group.name
        if not run_files.is_finished(own):
            continue
        _, scores = run_files.newest_scores(own / "evaluations.csv")
        captured = run_files.captured_fractions(own / "metrics.csv", group.config.env_steps // 2)
        for (sampler, seed), score in scores.items():
            key = (group.config.task, group.config.agent, sampler)
            line = found.setdefault(key, Line(*key, [], []))
            line.returns.append(score)
            if (sampler, seed) in captured:
                line.captured.append(float(np.mean(captured[sampler, seed])))
    return list(found.values())


def show(made: Sequence[Line], console: Console) -> None:
    """Print the table, and what its columns mean."""
    is_measured = any(line.captured for line in made)
    table = Table("", "mean return", *(["captured fraction"] if is_measured else []))
    cells = dict.fromkeys((line.task, line.agent) for line in made)
    for task, agent in cells:
        table.add_section()
        table.add_row(Text(f"{task} {agent.upper()}", "bold"))
        for line in made:
            if (line.task, line.agent) == (task, agent):
                captured = [_cell(line.captured, 2)] if is_measured else []
                table.add_row(Text(f"  {line.sampler}"), _cell(line.returns, 1), *captured)
    console.print(table)
    for meaning in [_RETURN, *([_CAPTURED] if is_measured else [])]:
        console.print(meaning, highlight=False)


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    shown = [float(np.mean(values)), min(values), max(values)]
    mean, low, high = (f"{value:z.{digits}f}" for value in shown)
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"
