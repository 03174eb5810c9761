"""`aes-rl lab score`: samplers simulated on recorded problems."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from aes_rl.errors import UserError
from aes_rl.lab.parallel import Simulation, simulate
from aes_rl.lab.recorded import PROBLEMS, Facts, RecordedProblem, find
from aes_rl.lab.score import TOLERANCE, Score, write
from aes_rl.samplers.registry import configure, rule_for, with_options_of, without_options
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.training.presets import adaptive_of_the_paper
from aes_rl.types import Signal

_TITLE = "captured fraction: 0 is uniform, 1 the oracle"
Value = TypeVar("Value")
SAMPLERS = ("prioritized", "adaptive", "adaptive:nu=auto", "last-value", "predictive")
"""What is simulated by default."""


@dataclass(frozen=True)
class Scoring:
    """Print the captured fraction of samplers on recorded problems, by live slots and batch size."""

    samplers: tyro.conf.Positional[tuple[str, ...]] = SAMPLERS
    """Samplers by name, with options after a colon, such as adaptive:nu=auto,floor=0.1; adaptive starts from the
    paper's parameters for the recorded task and agent."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, directories of them, or names of problems shipped with the package, such as hopper-sac.
    Make one with aes-rl train --trace-every and aes-rl lab pack."""
    batch_sizes: tuple[int, ...] = (256, 64)
    """Batch sizes to simulate."""
    slots: tuple[int, ...] = (300_000, 600_000, 1_000_000)
    """Numbers of live slots to print."""
    output: Path | None = None
    """CSV file for the captured fractions at all moments."""
    workers: int | None = None
    """Processes that simulate; by default one per core."""


def score(argv: list[str]) -> None:
    """Simulate and print the table."""
    args = tyro.cli(Scoring, prog="aes-rl lab score", args=argv)
    args = replace(args, samplers=unique(args.samplers), batch_sizes=unique(args.batch_sizes))
    problems = find(args.problems)
    jobs = [(problem, batch, name) for problem in problems for batch in args.batch_sizes for name in args.samplers]
    scores = simulated(jobs, args.workers)
    console = Console()
    console.print(_table(scores, args))
    if len(problems) > 1:
        console.print(_summary(scores, args))
    for problem in problems:
        most = max(point.live for own in scores if own.problem == problem.name for point in own.points)
        if most < (1 - TOLERANCE) * min(args.slots):
            console.print(f"{problem.name} ends at {most:,} slots; --slots {most} prints that row")
    if args.output is not None:
        write(scores, args.output)


def simulated(jobs: Sequence[tuple[RecordedProblem, int, str]], workers: int | None) -> list[Score]:
    """The scores of jobs, each a problem, a batch size and a sampler by name."""
    simulations = [Simulation(parse(name, problem.facts), problem, batch) for problem, batch, name in jobs]
    return [
        Score(problem.name, batch, name, points)
        for (problem, batch, name), points in zip(jobs, simulate(simulations, workers), strict=True)
    ]


def parse(text: str, facts: Facts) -> SamplerConfig:
    """A sampler's configuration from its name and options, such as `adaptive:nu=auto`.

    Options that are not given have the paper's values for the recorded task and agent, or else the defaults.
    """
    name = without_options(text)
    config = configure(name)
    if name == "adaptive":
        config = adaptive_of_the_paper(facts.task, facts.agent) or config
    if Signal.EVERY_GRADIENT_NORM in rule_for(config).needs:
        raise UserError(f"{name} needs feedback on all slots at once; a recorded problem gives it on drawn slots only")
    return with_options_of(text, config)


def unique(values: Iterable[Value]) -> tuple[Value, ...]:
    """Each value once, in order."""
    return tuple(dict.fromkeys(values))


def _table(scores: list[Score], args: Scoring) -> Table:
    table = Table("problem", "batch", "slots", *args.samplers, title=_TITLE)
    for batch in args.batch_sizes:
        for problem in unique(own.problem for own in scores):
            same = [own for own in scores if (own.batch_size, own.problem) == (batch, problem)]
            for label, values in _rows(same, args.slots):
                table.add_row(problem, str(batch), label, *_shown(values))
        table.add_section()
    return table


def _summary(scores: list[Score], args: Scoring) -> Table:
    table = Table("over problems", "batch", "slots", *args.samplers, title=_TITLE)
    for batch in args.batch_sizes:
        for name, label, values in averages([own for own in scores if own.batch_size == batch], args):
            table.add_row(name, str(batch), label, *_shown(values))
        table.add_section()
    return table


def _shown(values: Iterable[float]) -> Iterator[str]:
    return (f"{value:z.2f}" for value in values)


def _rows(scores: list[Score], slots: tuple[int, ...]) -> Iterator[tuple[str, list[float]]]:
    for count in slots:
        values = [own.at(count) for own in scores]
        if not all(np.isnan(values)):
            yield f"{count:,}", values
    yield "lowest", [own.lowest for own in scores]


def averages(scores: list[Score], args: Scoring) -> Iterator[tuple[str, str, list[float]]]:
    """Means over the problems that reach a number of slots, and the lowest value on any problem."""
    by_sampler = [[own for own in scores if own.sampler == name] for name in args.samplers]
    for count in args.slots:
        values = np.array([[own.at(count) for own in row] for row in by_sampler])
        values = values[:, ~np.isnan(values).any(axis=0)]
        if values.shape[1]:
            yield f"mean of {values.shape[1]}", f"{count:,}", values.mean(axis=1).tolist()
    yield f"all {len(by_sampler[0])}", "lowest", [min(own.lowest for own in row) for row in by_sampler]
