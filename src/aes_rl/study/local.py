"""Populations in processes of this machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from typing_extensions import override

from aes_rl.machine import cores
from aes_rl.study.schedule import AbstractExecutor, AbstractJob

_LONGEST_STOP = 120
"""Seconds a worker has for its last checkpoint."""


class LocalExecutor(AbstractExecutor):
    """As many workers at a time as the processor has cores for."""

    def __init__(self, processes: int | None = None, threads: int = 1):
        self.most_jobs = processes or max(1, cores() // threads)
        self._threads = threads

    @override
    def start(self, directory: Path) -> AbstractJob:
        return _Process(directory, self._threads)

    @override
    def close(self) -> None:
        pass


class _Process(AbstractJob):
    def __init__(self, directory: Path, threads: int):
        self._directory = directory
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "aes_rl.study.worker", str(directory), "--threads", str(threads)]
        with (directory / "worker.log").open("w") as log:
            # A pipe as its input tells the worker when this process is gone; a group of its own keeps Ctrl-C away.
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

    @override
    def outcome(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        self._lifeline.close()
        if code == 0:
            return ""
        told = self._directory / "failure.txt"
        if code == 1 and told.exists():
            return told.read_text().strip()
        log = (self._directory / "worker.log").read_text().strip()
        return f"{log[-2000:]}\nthe worker ended with exit code {code}".strip()

    @override
    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_LONGEST_STOP)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._lifeline.close()
