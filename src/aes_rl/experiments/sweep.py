"""`aes-rl lab sweep`: which of AES's parameters makes it lose, one at a time, on recorded problems."""

from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.console import Console

from aes_rl.experiments.score import PROBLEMS, Scored, find, once, write
from aes_rl.experiments.simulations import Simulation, simulate
from aes_rl.lab.trace import Facts
from aes_rl.report.figures import COLOURS, LOOK, save
from aes_rl.report.page import PlainTable, Section, experiment_page, picture
from aes_rl.samplers.adaptive import Adaptive
from aes_rl.training.presets import adaptive_of_the_paper

_VALUES: dict[str, tuple[Any, ...]] = {
    "nu": (1.0, 1000.0, 1e5, 1e7, 1e8, 1e9, 1e10, 1e11, "auto"),
    "floor": (0.05, 0.1, 0.2, 0.5, 0.8),
    "forget_every": (100, 333, 1000, 3333, 10_000),
    "retention": (0.0, 0.3, 0.7, 0.9, 1.0),
}
"""Options of AES and what to try; the others stay at the paper's values."""
_LETTERS = {"nu": "ν", "floor": "κ", "forget_every": "M", "retention": "ϱ"}
_LOWEST_SHOWN = -3.0
"""Where the figure ends; the table has all numbers."""


@dataclass(frozen=True)
class Sweep:
    """Vary AES's parameters one at a time on recorded problems; write a figure, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/sweep")
    """Folder to write to."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, or folders of them."""
    batch_sizes: tuple[int, ...] = (256,)
    """Batch sizes to simulate."""
    thinning: int = 1
    """Use every so many-th recorded slot: faster and coarser."""
    workers: int | None = None
    """Processes to simulate with; default one a core."""


def sweep(words: list[str]) -> None:
    """Simulate, draw and write."""
    asked = tyro.cli(Sweep, prog="aes-rl lab sweep", args=words)
    problems = [problem.thinned(asked.thinning) for problem in find(asked.problems)]
    jobs = [
        (problem, batch, option, value)
        for problem in problems
        for batch in asked.batch_sizes
        for option, values in _VALUES.items()
        for value in values
    ]
    simulations = [
        Simulation(changed(problem.facts, option, value), problem, batch) for problem, batch, option, value in jobs
    ]
    results = {
        (problem.name, batch, option, value): Scored(problem.name, batch, f"adaptive:{option}={value}", points)
        for (problem, batch, option, value), points in zip(jobs, simulate(simulations, asked.workers), strict=True)
    }
    asked.output.mkdir(parents=True, exist_ok=True)
    write(list(results.values()), asked.output / "sweep.csv")
    figure = picture(save(_draw(results), asked.output, "sweep"), "Captured fraction at the end, cut at −3.")
    table = _table(results)
    lead = "AES with the paper's parameters for the recorded task and agent, one of them changed at a time."
    page = experiment_page("What each parameter of AES does", lead, [Section("Captured fraction", [figure])], [table])
    (asked.output / "index.html").write_text(page)
    console = Console()
    for line in table.lines:
        console.print("  ".join(line))
    console.print(f"the figure, all numbers and a page are in {asked.output}")


def changed(facts: Facts, option: str, value: Any) -> Adaptive:
    """The paper's AES for a recorded task with one option changed; a ϱ that is given stays what it is."""
    config = adaptive_of_the_paper(facts.task, facts.agent) or Adaptive()
    if option == "retention":
        config = replace(config, retention_end=None)
    return replace(config, **{option: value})


def last(result: Scored) -> float:
    """The captured fraction over the last tenth of the record."""
    recent = result.points[-max(1, len(result.points) // 10) :]
    return float(np.mean([point.captured_fraction for point in recent]))


@mpl.rc_context(LOOK)
def _draw(results: dict[tuple[str, int, str, Any], Scored]) -> Figure:
    problems = once(problem for problem, *_ in results)
    batches = once(batch for _, batch, *_ in results)
    figure = Figure(figsize=(10, 2.3 * len(problems) + 0.7), layout="constrained")
    axes = figure.subplots(len(problems), len(_VALUES), sharex="col", sharey=True, squeeze=False)
    shown: dict[str, Any] = {}
    for row, problem in zip(axes, problems, strict=True):
        for axis, (option, values) in zip(row, _VALUES.items(), strict=True):
            for colour, batch in zip(cycle(COLOURS), batches, strict=False):
                heights = [last(results[problem, batch, option, value]) for value in values]
                (shown[f"batch {batch}"],) = axis.plot(heights, color=colour, marker="o", markersize=3)
            labels = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            axis.set_xticks(range(len(values)), labels, rotation=40, fontsize=7)
            axis.axhline(0, color="#999999", linewidth=0.8)
        row[0].set_title(problem, loc="left")
        row[0].set_ylabel("captured fraction")
    for axis, option in zip(axes[-1], _VALUES, strict=True):
        axis.set_xlabel(_LETTERS[option])
    axes[0, 0].set_ylim(_LOWEST_SHOWN, 1)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3)
    return figure


def _table(results: dict[tuple[str, int, str, Any], Scored]) -> PlainTable:
    lines = list(dict.fromkeys(key[:2] for key in results))
    rows = [
        [
            f"{_LETTERS[option]} = {value}",
            *(f"{last(results[problem, batch, option, value]):.2f}" for problem, batch in lines),
        ]
        for option, values in _VALUES.items()
        for value in values
    ]
    columns = ["parameter", *(f"{problem}, batch {batch}" for problem, batch in lines)]
    return PlainTable(
        "Captured fraction over the last tenth of the record", columns, rows, "0 is uniform, 1 the oracle."
    )
