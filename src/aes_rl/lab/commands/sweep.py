"""`aes-rl lab sweep`: AES's parameters, varied one at a time on recorded problems."""

from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from rich.console import Console

from aes_rl.lab.commands.score import unique
from aes_rl.lab.parallel import Simulation, simulate
from aes_rl.lab.recorded import PROBLEMS, Facts, find
from aes_rl.lab.score import Score, write
from aes_rl.options import assigned
from aes_rl.report.figures import COLOURS, LOOK, save
from aes_rl.report.page import PlainTable, Section, experiment_page, picture
from aes_rl.samplers.adaptive import Adaptive
from aes_rl.training.presets import adaptive_of_the_paper

Value = float | str
Scores = dict[tuple[str, int, str, Value], Score]
"""By problem, batch size, option and value."""
_VALUES: dict[str, tuple[Value, ...]] = {
    "nu": (1.0, 1000.0, 1e5, 1e7, 1e8, 1e9, 1e10, 1e11, "auto"),
    "floor": (0.05, 0.1, 0.2, 0.5, 0.8),
    "forget_every": (100, 333, 1000, 3333, 10_000),
    "retention": (0.0, 0.3, 0.7, 0.9, 1.0),
}
"""Values to try per option of AES; the other options have the paper's values."""
_LETTERS = {"nu": "ν", "floor": "κ", "forget_every": "M", "retention": "ϱ"}
_LOWEST_SHOWN = -3.0
"""Lower limit of the figure; the table has all values."""


@dataclass(frozen=True)
class Sweep:
    """Vary AES's parameters one at a time on recorded problems; write a figure, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/sweep")
    """Directory to write to."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, directories of them, or names of shipped problems."""
    batch_sizes: tuple[int, ...] = (256,)
    """Batch sizes to simulate."""
    thinning: int = 1
    """k: use every k-th recorded slot; faster and noisier."""
    workers: int | None = None
    """Processes that simulate; by default one per core."""


def sweep(argv: list[str]) -> None:
    """Simulate, draw and write."""
    args = tyro.cli(Sweep, prog="aes-rl lab sweep", args=argv)
    problems = [problem.thinned(args.thinning) for problem in find(args.problems)]
    jobs = [
        (problem, batch, option, value)
        for problem in problems
        for batch in args.batch_sizes
        for option, values in _VALUES.items()
        for value in values
    ]
    simulations = [
        Simulation(changed(problem.facts, option, value), problem, batch) for problem, batch, option, value in jobs
    ]
    scores = {
        (problem.name, batch, option, value): Score(problem.name, batch, f"adaptive:{option}={value}", points)
        for (problem, batch, option, value), points in zip(jobs, simulate(simulations, args.workers), strict=True)
    }
    args.output.mkdir(parents=True, exist_ok=True)
    write(list(scores.values()), args.output / "sweep.csv")
    figure = picture(
        save(_plot(scores), args.output, "sweep"), "Captured fraction over the last tenth of the record, cut at −3."
    )
    table = _table(scores)
    lead = "AES with the paper's parameters for the recorded task and agent, varied one at a time."
    page = experiment_page(
        "The effect of each parameter of AES", lead, [Section("Captured fraction", [figure])], [table]
    )
    (args.output / "index.html").write_text(page)
    console = Console()
    for line in table.lines:
        console.print("  ".join(line))
    console.print(f"the figure, all values and a page are in {args.output}")


def changed(facts: Facts, option: str, value: Value) -> Adaptive:
    """AES with the paper's parameters for a recorded task, one option changed; a changed ϱ is not annealed."""
    config = adaptive_of_the_paper(facts.task, facts.agent) or Adaptive()
    if option == "retention":
        config = replace(config, retention_end=None)
    return assigned(config, f"{option}={value}")


def final(score: Score) -> float:
    """The mean captured fraction over the last tenth of the recorded moments."""
    recent = score.points[-max(1, len(score.points) // 10) :]
    return float(np.mean([point.captured_fraction for point in recent]))


@mpl.rc_context(LOOK)
def _plot(scores: Scores) -> Figure:
    problems = unique(problem for problem, *_ in scores)
    batches = unique(batch for _, batch, *_ in scores)
    figure = Figure(figsize=(10, 2.3 * len(problems) + 0.7), layout="constrained")
    axes = figure.subplots(len(problems), len(_VALUES), sharex="col", sharey=True, squeeze=False)
    handles: dict[str, Artist] = {}
    for row, problem in zip(axes, problems, strict=True):
        for axis, (option, values) in zip(row, _VALUES.items(), strict=True):
            for colour, batch in zip(cycle(COLOURS), batches, strict=False):
                heights = [final(scores[problem, batch, option, value]) for value in values]
                (handles[f"batch {batch}"],) = axis.plot(heights, color=colour, marker="o", markersize=3)
            labels = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            axis.set_xticks(range(len(values)), labels, rotation=40, fontsize=7)
            axis.axhline(0, color="#999999", linewidth=0.8)
        row[0].set_title(problem, loc="left")
        row[0].set_ylabel("captured fraction")
    for axis, option in zip(axes[-1], _VALUES, strict=True):
        axis.set_xlabel(_LETTERS[option])
    axes[0, 0].set_ylim(_LOWEST_SHOWN, 1)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def _table(scores: Scores) -> PlainTable:
    lines = list(dict.fromkeys(key[:2] for key in scores))
    rows = [
        [
            f"{_LETTERS[option]} = {value}",
            *(f"{final(scores[problem, batch, option, value]):z.2f}" for problem, batch in lines),
        ]
        for option, values in _VALUES.items()
        for value in values
    ]
    columns = ["parameter", *(f"{problem}, batch {batch}" for problem, batch in lines)]
    return PlainTable(
        "Captured fraction over the last tenth of the record", columns, rows, "0 is uniform, 1 the oracle."
    )
