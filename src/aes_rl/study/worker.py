"""Trains one run group to its end in this process and reports progress and failure in files.

`python -m aes_rl.study.worker DIRECTORY` trains the group whose config.json is in the directory. When its standard
input is closed, it saves and stops: a worker must not run on after the study that started it has ended.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.options import from_json
from aes_rl.training import Interrupted, Runner, run_files

STOPPED = 3
"""Exit code of a worker that saved and stopped after a signal."""
_LOCK_TIMEOUT = 120
"""Seconds to wait for another process to release the directory, such as a worker that is still saving."""
_PROGRESS_INTERVAL = 0.5
"""Seconds between two writes of progress.json."""


def train_group(directory: Path, threads: int = 1) -> None:
    """Start or resume the group of a directory; does nothing if it is finished."""
    torch.set_num_threads(threads)
    if run_files.is_finished(directory):
        return
    runner = Runner(run_files.read_config(directory), directory, _LOCK_TIMEOUT)
    try:
        last_write = 0.0
        for step in runner.steps():
            if time.monotonic() - last_write > _PROGRESS_INTERVAL:
                last_write = time.monotonic()
                _write_progress(directory, step.env_step, runner)
    finally:
        runner.close()


@dataclass(frozen=True)
class Progress:
    """The progress of a worker."""

    env_step: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each sampler in the newest evaluation."""


def progress_of(directory: Path) -> Progress:
    """The latest progress of a running worker; step 0 without scores if it is unknown."""
    try:
        return from_json(Progress, files.read_json(directory / "progress.json"), "progress.json")
    except (OSError, UserError):
        return Progress()


def _write_progress(directory: Path, env_step: int, runner: Runner) -> None:
    progress = Progress(env_step, runner.mean_scores())
    files.write_whole(directory / "progress.json", json.dumps(asdict(progress)))


def _stop_with_parent() -> None:
    """Send this process a SIGTERM when its standard input is closed, which happens when the parent process ends."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Train the group of the directory given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # the runner replaces this handler
    _stop_with_parent()
    try:
        train_group(arguments.directory, arguments.threads)
    except Interrupted:
        sys.exit(STOPPED)
    except Exception:
        report = traceback.format_exc()
        sys.stderr.write(report)
        with suppress(OSError):  # the disk may be full
            files.write_whole(arguments.directory / "failure.txt", report)
        sys.exit(1)


if __name__ == "__main__":
    main()
