"""Kills training runs at critical moments, resumes them until they finish, and checks their files."""

import json
import os
import shlex
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Literal, NamedTuple

from tests.fork_server import Ended, ForkServer, Limits
from tests.training.test_continuing_pendulum import impossible, stored

Moment = Literal["any", "writing", "renamed"]
MOMENTS: tuple[Moment, ...] = ("any", "writing", "renamed")
"""When to kill: at any time, including the start; while an unfinished file exists, such as a checkpoint that is being
written; when a new checkpoint has just been renamed and older ones are removed."""
TASKS = {
    "InvertedPendulum-v5": "--seeds 0 --samplers uniform adaptive",
    "Pendulum-v1": "--seeds 0 --samplers uniform adaptive",
}
_OPTIONS = """
--env-steps 600 --capacity 700 --evaluate-every 30 --evaluation-episodes 1 --log-every 20 --checkpoint-every 40
--measure-variance-every 200 --measured-slots 20 --sac.hidden 8 8 --sac.batch-size 8 --sac.warm-up-steps 30
"""
_TIMEOUT_SECONDS = 60.0
_MAX_DELAY = 0.004
"""Maximum number of seconds between the moment and the kill."""


class Kill(NamedTuple):
    """One attempt to kill a run."""

    moment: Moment
    env_step: int
    """Step of the newest checkpoint at the time of the kill."""
    was_unfinished: bool
    """Whether an unfinished file was left."""
    ended: Ended

    @property
    def is_in_time(self) -> bool:
        """Whether the run was killed before it ended."""
        return self.ended.code == -signal.SIGKILL


class Harness:
    """A directory with two runs per task: one that is killed and resumed, and an uninterrupted one."""

    def __init__(self, directory: Path):
        self._directory = directory.resolve()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._server = ForkServer()
        self._server.prepare("tests.kill.harness:make_uninterrupted", str(self._directory))
        # Duration of a run in a forked process, in which everything is compiled already, as in the killed runs.
        self._seconds = {}
        for task in TASKS:
            shutil.rmtree(self.run_of(task), ignore_errors=True)
            self._seconds[task] = self._server.run(*self._command(task)).seconds

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()

    def run_of(self, task: str) -> Path:
        """The directory of the run that is killed."""
        return self._directory / f"{task}-killed"

    def begin(self, task: str) -> None:
        """Remove the last run."""
        shutil.rmtree(self.run_of(task), ignore_errors=True)

    def kill(self, task: str, moment: Moment, random: Random) -> Kill:
        """Start or resume the run, and kill it at the given moment."""
        run = self.run_of(task)
        before = set(_checkpoints(run))
        delay = random.random() * (_MAX_DELAY if moment != "any" else self._seconds[task])
        turns = random.randrange(1, 4)
        """The run is killed at this occurrence of the moment."""
        process = self._server.start(*self._command(task))
        handle = os.pidfd_open(process)
        until = time.monotonic() + _TIMEOUT_SECONDS
        was_there = False
        while moment != "any" and turns and _is_running(process) and time.monotonic() < until:
            if moment == "writing":
                is_there = bool(_unfinished(run))
            else:
                now = set(_checkpoints(run))
                is_there, before = bool(now - before), now | before
            turns -= is_there and not was_there
            was_there = is_there and moment == "writing"
        time.sleep(delay)
        with suppress(ProcessLookupError):  # it may have finished
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        ended = self._server.wait()
        return Kill(moment, max((int(name) for name in _checkpoints(run)), default=0), bool(_unfinished(run)), ended)

    def finish(self, task: str) -> list[str]:
        """Resume the run until it finishes; return its faults."""
        ended = self._server.run(*self._command(task))
        if ended.code != 0:
            return [self.failure(task, ended)]
        return self.faults(task)

    def failure(self, task: str, ended: Ended) -> str:
        """Exit code and error message of a run that failed."""
        message = (self._directory / "output" / "stderr").read_text()
        return f"{task}: exit code {ended.code}, {ended.excess}: {message[-500:]}"

    def faults(self, task: str) -> list[str]:
        """Differences between the resumed run and the uninterrupted one."""
        run, reference = self.run_of(task), uninterrupted_run(self._directory, task)
        found = [f"{path.name} was not removed" for path in _unfinished(run)]
        if task == "Pendulum-v1":
            rows = stored(run)
            if rows.shape != stored(reference).shape:
                found.append(f"{rows.shape} transitions are stored, not {stored(reference).shape}")
            return found + impossible(rows)
        newest = _checkpoints(reference)[-1]
        for name in ("evaluations.csv", "metrics.csv", f"checkpoint/{newest}/tensors.safetensors"):
            if not (run / name).is_file():
                found.append(f"{name} is missing")
            elif (run / name).read_bytes() != (reference / name).read_bytes():
                found.append(f"{name} differs from that of the uninterrupted run")
        if _facts(run, newest) != _facts(reference, newest):
            found.append("facts.json differs from that of the uninterrupted run")
        return found

    def _command(self, task: str) -> tuple[list[str], Path, Path, Limits]:
        run, output = self.run_of(task), self._directory / "output"
        output.mkdir(exist_ok=True)
        options = [] if _checkpoints(run) else ["--task", task, *shlex.split(_OPTIONS + TASKS[task])]
        return ["train", str(run), *options], self._directory, output, Limits(_TIMEOUT_SECONDS)


def uninterrupted_run(directory: Path, task: str) -> Path:
    """The directory of the uninterrupted run."""
    return directory / f"{task}-uninterrupted"


def make_uninterrupted(directory: str) -> None:
    """Train every task without interruption, in the process that is forked later."""
    from aes_rl.cli import main

    for task, options in TASKS.items():
        run = uninterrupted_run(Path(directory), task)
        shutil.rmtree(run, ignore_errors=True)
        main(["train", str(run), "--task", task, *shlex.split(_OPTIONS + options)])


def _checkpoints(run: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(run / "checkpoint") if name.isdigit())
    except FileNotFoundError:
        return []


def _unfinished(run: Path) -> list[Path]:
    found = []
    for place in (run, run / "checkpoint"):
        try:
            found += [place / name for name in os.listdir(place) if "unfinished" in name]
        except FileNotFoundError:
            continue
    return found


def _facts(run: Path, checkpoint: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads((run / "checkpoint" / checkpoint / "facts.json").read_text())
    return {name: value for name, value in facts.items() if name != "seconds"}


def _is_running(process: int) -> bool:
    """Whether a process that is not a child of this one is running."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
