"""Trains run groups in worker processes on this machine."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.machine import core_shares, cores
from aes_rl.study.schedule import AbstractExecutor, AbstractJob

_STOP_TIMEOUT = 120
"""Seconds that a worker has to save and exit before it is killed."""
_MOST_SHOWN = 2000
"""Length of the end of a worker's log, or of its error report, that is shown."""


class LocalExecutor(AbstractExecutor):
    """Trains `processes` groups at a time, by default one per `threads` cores on the CPU and one on a GPU.

    A worker on a GPU starts further processes, for environments and test episodes; how many follows from the cores that
    it may use. With at least one core per worker, each worker is therefore bound to a separate share of the cores.
    """

    def __init__(self, processes: int | None = None, threads: int = 1, device: str = "cpu"):
        is_on_gpu = device != "cpu"
        self.most_jobs = processes or (1 if is_on_gpu else max(1, cores() // threads))
        self._threads = threads
        self._shares = core_shares(self.most_jobs) if is_on_gpu else []
        self._jobs: dict[frozenset[int], _Process] = {}
        """The job that was last bound to each share of the cores."""

    @override
    def start(self, directory: Path) -> AbstractJob:
        job = _Process(directory, self._threads)
        free = [share for share in self._shares if share not in self._jobs or self._jobs[share].has_ended()]
        if free:
            job.bind(free[0])
            self._jobs[free[0]] = job
        return job

    @override
    def close(self) -> None:
        pass


class _Process(AbstractJob):
    def __init__(self, directory: Path, threads: int):
        self._directory = directory
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "aes_rl.study.worker", str(directory), "--threads", str(threads)]
        (directory / "failure.txt").unlink(missing_ok=True)  # of an earlier attempt
        with files.open_to_write(directory / "worker.log") as log:
            log.truncate(0)
            # A worker stops when its standard input is closed, which also happens if this process dies. In a session of
            # its own it does not get the terminal's Ctrl-C.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        assert self._process.stdin is not None
        self._lifeline = self._process.stdin

    def bind(self, share: frozenset[int]) -> None:
        """Restrict the worker, and the processes that it starts, to these cores."""
        with suppress(ProcessLookupError):  # it has already ended
            os.sched_setaffinity(self._process.pid, share)

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @override
    def outcome(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        self._lifeline.close()
        if code == 0:
            return ""
        failure = self._directory / "failure.txt"
        if code == 1 and failure.exists():
            return _end_of(failure)
        return f"{_end_of(self._directory / 'worker.log')}\nthe worker ended with exit code {code}".strip()

    @override
    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.kill()
        self._lifeline.close()

    @override
    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _end_of(path: Path) -> str:
    """The end of a text that a process wrote, whatever it wrote; the reason why, if it cannot be read."""
    try:
        with files.open_to_read(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _MOST_SHOWN))
            return file.read().decode(errors="replace").strip()[-_MOST_SHOWN:]
    except (OSError, UserError) as error:
        return str(error)
