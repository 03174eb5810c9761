"""One population trained to its end in this process, its progress and its fate told in files.

`python -m aes_rl.study.worker DIRECTORY` does it for a directory that holds a config.json. It stops, saved, when its
standard input ends, so a worker does not outlive the study that started it.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.training import Interrupted, Runner, run_files

STOPPED = 3
"""Exit code of a worker that was asked to stop and has saved."""
_PATIENCE = 120
"""Seconds to wait for another process to leave the directory, such as a worker that is still saving."""


def train_population(directory: Path, threads: int = 1) -> None:
    """Start or continue the run of a directory. A finished one is left alone."""
    torch.set_num_threads(threads)
    if run_files.is_finished(directory):
        return
    runner = Runner(run_files.read_config(directory), directory, _PATIENCE)
    (directory / "failure.txt").unlink(missing_ok=True)
    try:
        told = 0.0
        for step in runner.steps():
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                _tell(directory, step.env_step, runner)
    finally:
        runner.close()


def progress_of(directory: Path) -> dict[str, Any]:
    """What a running worker said last: its step and the mean score of every sampler."""
    try:
        return files.read_json(directory / "progress.json")
    except (OSError, UserError):
        return {}


def _tell(directory: Path, env_step: int, runner: Runner) -> None:
    told = {"env_step": env_step, "scores": runner.mean_scores()}
    files.write_whole(directory / "progress.json", json.dumps(told))


def _stop_with_parent() -> None:
    """Ask this process to stop once its standard input ends."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Train the population of the directory named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # until the runner handles it
    _stop_with_parent()
    try:
        train_population(arguments.directory, arguments.threads)
    except Interrupted:
        sys.exit(STOPPED)
    except Exception:
        told = traceback.format_exc()
        sys.stderr.write(told)
        with suppress(OSError):  # a full disk may be the reason
            files.write_whole(arguments.directory / "failure.txt", told)
        sys.exit(1)


if __name__ == "__main__":
    main()
