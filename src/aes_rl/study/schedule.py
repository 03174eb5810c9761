"""Which population runs next, what is tried again, and what became of each; the same for every executor."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from aes_rl.study.grid import Population
from aes_rl.training.run_files import is_finished

_MOST_STOPPED = 32
"""Jobs that are waited for at a time when a study stops."""


class AbstractJob(ABC):
    """One attempt at one population."""

    @abstractmethod
    def outcome(self) -> str | None:
        """None while it runs, an empty string if it finished, else what went wrong."""

    @abstractmethod
    def stop(self) -> None:
        """Let it save and end; returns when it has."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, from another thread than the one that waits in `stop` too."""


class AbstractExecutor(ABC):
    """A place where populations are trained."""

    most_jobs: int
    """How many it takes at a time."""

    @abstractmethod
    def start(self, directory: Path) -> AbstractJob:
        """Start or continue the population of a directory."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the executor holds."""


@dataclass
class Summary:
    """What became of the populations, by name."""

    finished: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Finished before."""
    failed: dict[str, str] = field(default_factory=dict)
    """With what went wrong the last time."""


@dataclass(frozen=True)
class News:
    """Something to tell the user."""

    name: str
    kind: str
    """started, finished, retried or failed."""
    text: str = ""


def execute(
    packed: Sequence[Population],
    directory: Path,
    executor: AbstractExecutor,
    *,
    retries: int = 2,
    tell: Callable[[News], None] = lambda _: None,
    tick: Callable[[list[str]], None] = lambda _: None,
) -> Summary:
    """Train what is not finished; a failure is tried again and then left, and does not stop the rest.

    `tell` hears of every start and end, `tick` several times a second which populations run. On an exception, such as
    from a signal, the jobs save and end first.
    """
    summary = Summary(skipped=[own.name for own in packed if is_finished(directory / own.name)])
    waiting = [own.name for own in packed if own.name not in summary.skipped]
    failures = dict.fromkeys(waiting, 0)
    running: dict[str, AbstractJob] = {}
    try:
        while waiting or running:
            while waiting and len(running) < executor.most_jobs:
                name = waiting.pop(0)
                running[name] = executor.start(directory / name)
                tell(News(name, "started"))
            for name, job in list(running.items()):
                outcome = job.outcome()
                if outcome is None:
                    continue
                del running[name]
                if is_finished(directory / name):
                    summary.finished.append(name)
                    tell(News(name, "finished"))
                    continue
                reason = outcome or "it ended without finishing"
                failures[name] += 1
                if failures[name] <= retries:
                    waiting.append(name)
                    tell(News(name, "retried", reason))
                else:
                    summary.failed[name] = reason
                    tell(News(name, "failed", reason))
            tick(list(running))
            time.sleep(0.1)
    except BaseException:
        _stop(list(running.values()))
        raise
    return summary


def _stop(jobs: list[AbstractJob]) -> None:
    """Let all jobs save and end; a second signal ends them at once."""
    with ThreadPoolExecutor(_MOST_STOPPED) as together:
        try:
            list(together.map(lambda job: job.stop(), jobs))
        except KeyboardInterrupt:
            for job in jobs:
                job.kill()
            raise
