"""`aes-rl lab score`: samplers simulated on recorded problems."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from aes_rl.errors import UserError
from aes_rl.experiments.simulations import Simulation, simulate
from aes_rl.lab.score import Point
from aes_rl.lab.trace import Facts, Trace, load
from aes_rl.samplers.registry import RULES, configure, with_options_of, without_options
from aes_rl.training.presets import adaptive_of_the_paper
from aes_rl.types import Signal

T = TypeVar("T")
PROBLEMS = Path(__file__).parents[1] / "problems"
"""The recorded problems that come with the package."""
SAMPLERS = ("prioritized", "adaptive", "adaptive:nu=auto", "last-value", "predictive")
WITHIN = 0.1
"""A score at n slots is the mean over the moments with at most a tenth fewer."""


@dataclass(frozen=True)
class Score:
    """Print the captured fraction of samplers on recorded problems, by live slots and batch size."""

    samplers: tyro.conf.Positional[tuple[str, ...]] = SAMPLERS
    """Samplers by name, with options after a colon, such as adaptive:nu=auto,floor=0.1; adaptive starts from the
    paper's parameters for the recorded task and agent."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, folders of them, or names of those that come with the package, such as hopper-sac. Make
    one with aes-rl train --trace-every and aes-rl lab pack."""
    batch_sizes: tuple[int, ...] = (256, 64)
    """Batch sizes to simulate."""
    slots: tuple[int, ...] = (200_000, 300_000, 1_000_000)
    """Live slots at which to look."""
    output: Path | None = None
    """Where to write every point, as CSV."""
    workers: int | None = None
    """Processes to simulate with; default one a core."""


@dataclass(frozen=True)
class Scored:
    """One sampler on one problem with one batch size."""

    problem: str
    batch_size: int
    sampler: str
    points: list[Point] = field(repr=False)

    def at(self, slots: int) -> float:
        """The mean captured fraction about a number of live slots; nan where the problem has none."""
        near = [p.captured_fraction for p in self.points if (1 - WITHIN) * slots <= p.live <= slots]
        return float(np.mean(near)) if near else float("nan")

    @property
    def lowest(self) -> float:
        """The lowest captured fraction at any moment."""
        return min(point.captured_fraction for point in self.points)


def score(words: list[str]) -> None:
    """Print the table."""
    asked = tyro.cli(Score, prog="aes-rl lab score", args=words)
    asked = replace(asked, samplers=once(asked.samplers), batch_sizes=once(asked.batch_sizes))
    problems = find(asked.problems)
    jobs = [(problem, batch, name) for problem in problems for batch in asked.batch_sizes for name in asked.samplers]
    results = scored(jobs, asked.workers)
    console = Console()
    console.print(_table(results, asked))
    for problem in problems:
        most = max(point.live for result in results if result.problem == problem.name for point in result.points)
        if most < (1 - WITHIN) * min(asked.slots):
            console.print(f"{problem.name} ends at {most:,} slots; --slots {most} looks there")
    if asked.output is not None:
        write(results, asked.output)


def scored(jobs: Sequence[tuple[Trace, int, str]], workers: int | None) -> list[Scored]:
    """Every problem, batch size and sampler by name, simulated."""
    simulations = [Simulation(parse(name, problem.facts), problem, batch) for problem, batch, name in jobs]
    return [
        Scored(problem.name, batch, name, points)
        for (problem, batch, name), points in zip(jobs, simulate(simulations, workers), strict=True)
    ]


def parse(text: str, facts: Facts) -> Any:
    """A sampler's configuration from its name and options, such as `adaptive:nu=auto`.

    What is not said is the paper's for the recorded task and agent, or else the default.
    """
    name = without_options(text)
    config = configure(name)
    if name == "adaptive":
        config = adaptive_of_the_paper(facts.task, facts.agent) or config
    if Signal.EVERY_GRADIENT_NORM in RULES[name].needs:
        raise UserError(f"{name} hears from all slots at once; a recorded problem has draws and feedback")
    return with_options_of(text, config)


def once(values: Iterable[T]) -> tuple[T, ...]:
    """Every value once, in order."""
    return tuple(dict.fromkeys(values))


def find(paths: Sequence[Path]) -> list[Trace]:
    """The recorded problems in files and folders, or shipped under a name."""
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise UserError(
            f"no recorded problem in {', '.join(map(str, paths))}; record one with aes-rl train --trace-every and "
            "aes-rl lab pack"
        )
    problems = [load(file) for file in files]
    names = [problem.name for problem in problems]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{names.count(name)} of the recorded problems are called {name}; give one of them at a time"
            )
    return problems


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    if path.exists():
        return [path]
    shipped = {file.stem: file for file in sorted(PROBLEMS.glob("*.safetensors"))}
    if str(path) not in shipped:
        raise UserError(f"there is no recorded problem {path}; those that come along are {', '.join(shipped)}")
    return [shipped[str(path)]]


def write(results: Sequence[Scored], path: Path) -> None:
    """Every point of every simulation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = ("problem", "batch_size", "sampler", "live_slots", "network", "captured_fraction", "oracle_ratio")
        writer.writerow(names)
        for result in results:
            for point in result.points:
                start = (result.problem, result.batch_size, result.sampler, point.live)
                for network, captured in {"total": point.captured_fraction, **point.by_network}.items():
                    ratio = f"{point.oracle_ratio:.4f}" if network == "total" else ""
                    writer.writerow((*start, network, f"{captured:.4f}", ratio))


def _table(results: list[Scored], asked: Score) -> Table:
    table = Table("problem", "batch", "slots", *asked.samplers, title="captured fraction: 0 is uniform, 1 the oracle")
    problems = once(result.problem for result in results)
    for batch in asked.batch_sizes:
        same = [result for result in results if result.batch_size == batch]
        for problem in problems:
            for label, values in _lines([r for r in same if r.problem == problem], asked.slots):
                table.add_row(problem, str(batch), label, *(f"{value:.2f}" for value in values))
        if len(problems) > 1:
            for name, label, values in averages(same, asked):
                table.add_row(name, str(batch), label, *(f"{value:.2f}" for value in values), style="bold")
        table.add_section()
    return table


def _lines(results: list[Scored], slots: tuple[int, ...]) -> Iterator[tuple[str, list[float]]]:
    for count in slots:
        values = [result.at(count) for result in results]
        if not all(np.isnan(values)):
            yield f"{count:,}", values
    yield "lowest", [result.lowest for result in results]


def averages(results: list[Scored], asked: Score) -> Iterator[tuple[str, str, list[float]]]:
    """Means over the problems that have so many slots, and the lowest value on any."""
    by_sampler = [[result for result in results if result.sampler == name] for name in asked.samplers]
    for count in asked.slots:
        values = np.array([[result.at(count) for result in own] for own in by_sampler])
        values = values[:, ~np.isnan(values).any(axis=0)]
        if values.shape[1]:
            yield f"mean of {values.shape[1]}", f"{count:,}", values.mean(axis=1).tolist()
    yield f"all {len(by_sampler[0])}", "lowest", [min(result.lowest for result in own) for own in by_sampler]
