"""The scheduler of a study: which run group starts next and which failure is retried; the same for all executors."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aes_rl.study.grid import RunGroup
from aes_rl.training.run_files import is_finished

_STOPPING_THREADS = 32
"""Jobs that are stopped at a time when a study is interrupted."""


class AbstractJob(ABC):
    """One attempt to train one run group."""

    @abstractmethod
    def outcome(self) -> str | None:
        """None while it runs, an empty string after success, else the error."""

    @abstractmethod
    def stop(self) -> None:
        """Make it save a checkpoint and end; returns when it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; may be called while another thread waits in `stop`."""


class AbstractExecutor(ABC):
    """A place where run groups are trained."""

    most_jobs: int
    """Jobs that may run at a time."""

    @abstractmethod
    def start(self, directory: Path) -> AbstractJob:
        """Start or resume the group of a directory."""

    @abstractmethod
    def close(self) -> None:
        """Release the executor's resources."""


@dataclass
class Summary:
    """The outcome per group, by name."""

    finished: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Already finished before."""
    failed: dict[str, str] = field(default_factory=dict)
    """With the error of the last attempt."""


@dataclass(frozen=True)
class Event:
    """A change in the state of a group."""

    name: str
    kind: Literal["started", "finished", "retried", "failed"]
    text: str = ""


def execute(
    groups: Sequence[RunGroup],
    directory: Path,
    executor: AbstractExecutor,
    *,
    retries: int = 2,
    on_event: Callable[[Event], None] = lambda _: None,
    on_tick: Callable[[list[str]], None] = lambda _: None,
) -> Summary:
    """Train the unfinished groups; a group that fails after all retries does not stop the others.

    `on_event` is called at every start and end of a job, `on_tick` ten times per second with the running groups. If one
    of them raises, as after a signal, the jobs save and end first.
    """
    summary = Summary(skipped=[group.name for group in groups if is_finished(directory / group.name)])
    waiting = [group.name for group in groups if group.name not in summary.skipped]
    failures = dict.fromkeys(waiting, 0)
    running: dict[str, AbstractJob] = {}
    try:
        while waiting or running:
            while waiting and len(running) < executor.most_jobs:
                name = waiting.pop(0)
                running[name] = executor.start(directory / name)
                on_event(Event(name, "started"))
            for name, job in list(running.items()):
                outcome = job.outcome()
                if outcome is None:
                    continue
                del running[name]
                if is_finished(directory / name):
                    summary.finished.append(name)
                    on_event(Event(name, "finished"))
                    continue
                reason = outcome or "it ended without finishing"
                failures[name] += 1
                if failures[name] <= retries:
                    waiting.append(name)
                    on_event(Event(name, "retried", reason))
                else:
                    summary.failed[name] = reason
                    on_event(Event(name, "failed", reason))
            on_tick(list(running))
            time.sleep(0.1)
    except BaseException:
        _stop(list(running.values()))
        raise
    return summary


def _stop(jobs: list[AbstractJob]) -> None:
    """Make all jobs save and end; a second signal ends them at once."""
    with ThreadPoolExecutor(_STOPPING_THREADS) as pool:
        try:
            list(pool.map(lambda job: job.stop(), jobs))
        except KeyboardInterrupt:
            for job in jobs:
                job.kill()
            raise
