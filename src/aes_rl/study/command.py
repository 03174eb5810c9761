"""The command `aes-rl compare`: a whole study with live progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from aes_rl import checks
from aes_rl.errors import RunError
from aes_rl.machine import on_signals
from aes_rl.study.grid import Population, Study, prepare
from aes_rl.study.local import LocalExecutor
from aes_rl.study.schedule import AbstractExecutor, News, Summary, execute
from aes_rl.study.worker import progress_of

_console = Console()
_SECONDS_A_LINE = 60
"""Between two lines about a population in a log, where nobody sees its bar move."""


@dataclass(frozen=True)
class Execution:
    """Where and how a study runs; not part of what it is, so it may change between two calls."""

    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    address: str | None = None
    """With Ray: an existing cluster's address; by default one is started on this machine."""
    processes: int | None = None
    """Populations at a time on this machine; by default as many as the cores allow, on a GPU one. Several on a GPU
    share the cores out among them."""
    threads: int = 1
    """Processor threads of one population."""
    gpus: float = 0.0
    """With Ray: GPUs of one population, fractions included."""
    retries: int = 2
    """How often a failed population is tried again, from its checkpoint."""

    def __post_init__(self) -> None:
        checks.count("threads", self.threads)
        checks.non_negative("retries", self.retries)


@dataclass(frozen=True)
class Compare:
    """Train every combination of task, agent, sampler and seed; the same command continues a stopped study."""

    directory: tyro.conf.Positional[Path]
    """Where the study's files go."""
    study: Annotated[Study, tyro.conf.arg(name="")]
    execution: Annotated[Execution, tyro.conf.arg(name="")]


def compare(words: list[str]) -> None:
    """Run a study and say what became of it."""
    asked = tyro.cli(Compare, prog="aes-rl compare", args=words)
    run_study(asked.study, asked.directory, asked.execution)


def run_study(study: Study, directory: Path, execution: Execution) -> Summary:
    """Train what is missing, with progress; raises if some population failed to the last."""
    packed = prepare(study, directory)
    runs = sum(population.runs for population in packed)
    _console.print(f"{runs} runs in {len(packed)} populations, in {directory}")
    executor = executor_of(execution, packed[0].config.device)
    try:
        summary = execute_shown(packed, directory, executor, execution.retries)
    finally:
        executor.close()
    counts = {population.name: population.runs for population in packed}
    done = sum(counts[name] for name in summary.finished + summary.skipped)
    _console.print(f"{done} of {runs} runs are finished. Look at them with\n  aes-rl report {directory}")
    if summary.failed:
        last_lines = "; ".join(f"{name}: {_last_line(reason)}" for name, reason in summary.failed.items())
        raise RunError(f"{len(summary.failed)} of {len(packed)} populations failed ({last_lines})")
    return summary


def execute_shown(packed: list[Population], directory: Path, executor: AbstractExecutor, retries: int) -> Summary:
    """Train populations with progress; on Ctrl-C or SIGTERM save, say so, and end with the code a shell expects."""
    signals: list[int] = []
    try:
        with on_signals(signals.append), shown(packed, directory) as (tell, tick):

            def look_and_tick(running: list[str]) -> None:
                if signals:
                    raise _Stopped
                tick(running)

            return execute(packed, directory, executor, retries=retries, tell=tell, tick=look_and_tick)
    except _Stopped:
        _console.print("stopped; everything is saved. Continue with the same command")
        raise SystemExit(128 + signals[0]) from None


class _Stopped(Exception):
    """A signal asked for an end."""


def executor_of(execution: Execution, device: str) -> AbstractExecutor:
    """The executor asked for, of populations that learn on a device."""
    if execution.engine == "local":
        return LocalExecutor(execution.processes, execution.threads, device)
    from aes_rl.study.ray import RayExecutor

    return RayExecutor(execution.address, float(execution.threads), execution.gpus)


@contextmanager
def shown(
    packed: list[Population], directory: Path
) -> Iterator[tuple[Callable[[News], None], Callable[[list[str]], None]]]:
    """A bar for the whole study and one for each running population, with its newest scores; in a log, lines."""
    steps = {population.name: population.config.env_steps for population in packed}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[scores]}"), console=_console) as bars:
        whole = bars.add_task("populations", total=len(packed), scores="")
        lines: dict[str, TaskID] = {}
        logged: dict[str, float] = {}

        def tell(news: News) -> None:
            if news.kind == "started":
                lines[news.name] = bars.add_task(news.name, total=steps[news.name], scores="")
                logged[news.name] = time.monotonic()
                return
            bars.remove_task(lines.pop(news.name))
            if news.kind == "finished":
                bars.print(f"finished {news.name}")
            else:
                bars.print(f"{news.kind} {news.name}:\n{news.text}", markup=False)
            if news.kind != "retried":
                bars.advance(whole)

        def tick(running: list[str]) -> None:
            for name in running:
                told = progress_of(directory / name)
                scores = "  ".join(f"{sampler} {score:.0f}" for sampler, score in told.get("scores", {}).items())
                step = told.get("env_step", 0)
                bars.update(lines[name], completed=step, scores=scores)
                if not _console.is_terminal and time.monotonic() - logged[name] > _SECONDS_A_LINE:
                    logged[name] = time.monotonic()
                    bars.print(f"{name} step {step:,} of {steps[name]:,}  {scores}", soft_wrap=True)

        yield tell, tick


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]
