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

from aes_rl import checks, extensions, files
from aes_rl.errors import RunError
from aes_rl.machine import on_signals
from aes_rl.options import Config, from_json
from aes_rl.study import summary as summary_table
from aes_rl.study.grid import STUDY_FILE, RunGroup, Study, prepare
from aes_rl.study.local import LocalExecutor
from aes_rl.study.schedule import AbstractExecutor, Event, Summary, execute
from aes_rl.study.worker import progress_of
from aes_rl.training.run_files import is_finished

_console = Console()
_LOG_INTERVAL = 60
"""Seconds between two progress lines of a group where the output is no terminal."""


@dataclass(frozen=True)
class Execution:
    """Where and how a study runs; these options do not affect its results and may change between two calls."""

    engine: Literal["local", "ray"] = "local"
    """Where run groups are trained: in processes of this machine, or on a Ray cluster."""
    address: str | None = None
    """With Ray: the address of an existing cluster; by default a cluster is started on this machine."""
    processes: int | None = None
    """Groups trained at a time on this machine; by default one per available core, or one on a GPU. Several groups on a
    GPU divide the cores among them."""
    threads: int = 1
    """CPU threads per group."""
    gpus: float = 0.0
    """With Ray: GPUs per group; may be a fraction."""
    retries: int = 2
    """How many times a failed group is restarted from its checkpoint."""

    def __post_init__(self) -> None:
        if self.processes is not None:
            checks.count("processes", self.processes)
        checks.count("threads", self.threads)
        checks.non_negative("gpus", self.gpus)
        checks.non_negative("retries", self.retries)


@dataclass(frozen=True)
class Compare:
    """Train all combinations of task, agent, sampler and seed; the directory alone resumes a stopped study."""

    directory: tyro.conf.Positional[Path]
    """Directory of the study's files."""
    study: Annotated[Study, tyro.conf.arg(name="")]
    execution: Annotated[Execution, tyro.conf.arg(name="")]


def compare(argv: list[str]) -> None:
    """Run a study and print a summary; in the directory of a study, options that are not given are the study's."""

    def parsed(study: Study) -> Compare:
        default = Compare(tyro.MISSING, study, Execution())
        return tyro.cli(Compare, prog="aes-rl compare", args=argv, default=default)

    path = directory_in(argv, lambda: parsed(Study()).directory) / STUDY_FILE
    args = parsed(begun(Study, path) or Study())
    if not is_typed("--tasks", argv):
        for task in args.study.tasks:
            extensions.require_trust(task, str(path))
    run_study(args.study, args.directory, args.execution)


def directory_in(argv: list[str], otherwise: Callable[[], Path]) -> Path:
    """The directory on a command line, where it is the first argument, or else what a parser finds."""
    return Path(argv[0]) if argv and not argv[0].startswith("-") else otherwise()


def is_typed(option: str, argv: list[str]) -> bool:
    """Whether an option is on the command line."""
    return any(argument.partition("=")[0] == option for argument in argv)


def begun(kind: type[Config], path: Path) -> Config | None:
    """What a directory was begun with, if it was."""
    return from_json(kind, files.read_json(path), path.name) if files.is_file(path) else None


def run_study(study: Study, directory: Path, execution: Execution) -> Summary:
    """Train the unfinished run groups with a progress display; raises if a group failed after all retries."""
    require_engine(execution)
    return train_groups(prepare(study, directory), directory, execution)


def train_groups(groups: list[RunGroup], directory: Path, execution: Execution) -> Summary:
    """Train the unfinished ones of some run groups, whose names are relative to a directory, and print a summary."""
    runs = sum(group.runs for group in groups)
    _console.print(f"{runs} runs in {len(groups)} group{'s' if len(groups) > 1 else ''}, in {directory}")
    device = next((group.config.device for group in groups if group.config.device != "cpu"), "cpu")
    executor = executor_of(execution, device)
    try:
        summary = execute_with_progress(groups, directory, executor, execution.retries)
    finally:
        executor.close()
    counts = {group.name: group.runs for group in groups}
    done = sum(counts[name] for name in summary.finished + summary.skipped)
    if done:
        summary_table.show(summary_table.lines(groups, directory), _console)
    _console.print(f"{done} of {runs} runs are finished. Write the report with\n  aes-rl report {directory}")
    if summary.failed:
        last_lines = "; ".join(f"{name}: {_last_line(reason)}" for name, reason in summary.failed.items())
        raise RunError(f"{len(summary.failed)} of {len(groups)} groups failed ({last_lines})")
    return summary


def execute_with_progress(groups: list[RunGroup], directory: Path, executor: AbstractExecutor, retries: int) -> Summary:
    """Train groups with a progress display; on SIGINT or SIGTERM save, say so, and exit with 128 + the signal."""
    signals: list[int] = []
    try:
        with on_signals(signals.append), progress_display(groups, directory) as (on_event, refresh):

            def on_tick(running: list[str]) -> None:
                if signals:
                    raise _Stopped
                refresh(running)

            return execute(groups, directory, executor, retries=retries, on_event=on_event, on_tick=on_tick)
    except _Stopped:
        _console.print("stopped; everything is saved. Resume with the same command")
        raise SystemExit(128 + signals[0]) from None


class _Stopped(Exception):
    """A signal has arrived."""


def require_engine(execution: Execution) -> None:
    """Raise if the chosen engine is not installed."""
    if execution.engine == "ray":
        extensions.require_extra("ray", "ray")


def executor_of(execution: Execution, device: str) -> AbstractExecutor:
    """The chosen executor, for groups that train on a device."""
    if execution.engine == "local":
        return LocalExecutor(execution.processes, execution.threads, device)
    from aes_rl.study.ray import RayExecutor

    return RayExecutor(execution.address, float(execution.threads), execution.gpus)


@contextmanager
def progress_display(
    groups: list[RunGroup], directory: Path
) -> Iterator[tuple[Callable[[Event], None], Callable[[list[str]], None]]]:
    """A bar for the study and one per running group with its latest returns; lines where the output is no terminal."""
    steps = {group.name: group.config.env_steps for group in groups}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[scores]}"), console=_console) as bars:
        before = sum(is_finished(directory / group.name) for group in groups)
        whole = bars.add_task("groups", total=len(groups), completed=before, scores="")
        tasks: dict[str, TaskID] = {}
        logged: dict[str, float] = {}

        def on_event(event: Event) -> None:
            if event.kind == "started":
                tasks[event.name] = bars.add_task(event.name, total=steps[event.name], scores="")
                logged[event.name] = time.monotonic()
                return
            bars.remove_task(tasks.pop(event.name))
            if event.kind == "finished":
                bars.print(f"finished {event.name}")
            else:
                bars.print(f"{event.kind} {event.name}:\n{event.text}", markup=False)
            if event.kind != "retried":
                bars.advance(whole)

        def refresh(running: list[str]) -> None:
            for name in running:
                progress = progress_of(directory / name)
                own = "  ".join(f"{sampler} {score:.0f}" for sampler, score in progress.scores.items())
                scores = f"mean return: {own}" if own else ""
                step = progress.env_step
                bars.update(tasks[name], completed=step, scores=scores)
                if not _console.is_terminal and time.monotonic() - logged[name] > _LOG_INTERVAL:
                    logged[name] = time.monotonic()
                    bars.print(f"{name} step {step:,} of {steps[name]:,}  {scores}", soft_wrap=True)

        yield on_event, refresh


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1]
