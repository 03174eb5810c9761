"""The files of a run: what was asked for, where it ran, and two tables."""

import csv
import io
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from aes_rl import extensions, files
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import RunError, UserError
from aes_rl.machine import cores
from aes_rl.options import from_json
from aes_rl.training.config import TRAINABLE, SamplerOptions, Training, field_of

_LOCK, _CONFIG, _MANIFEST = "lock", "config.json", "manifest.json"
_PACKAGES = ("aes-rl", "torch", "numpy", "gymnasium", "mujoco")


class Table:
    """A CSV file that grows by rows and can be cut back to where a checkpoint left it."""

    def __init__(self, path: Path, columns: tuple[str, ...], size: int | None):
        """Start the file, or continue it after its first `size` bytes."""
        self._path = path
        file = files.open_to_write(path)
        if size is not None and os.fstat(file.fileno()).st_size < size:
            file.close()
            raise UserError(f"{path} is shorter than its checkpoint says ({size} bytes); the run cannot be resumed")
        file.truncate(size or 0)
        file.seek(size or 0)
        self._file = io.TextIOWrapper(file, newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if size is None:
            self._writer.writerow(columns)

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows and hand them to the system."""
        self._require_place()
        self._writer.writerows(rows)
        self._file.flush()

    def size(self) -> int:
        """Bytes written so far, on the disk."""
        self._require_place()
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _require_place(self) -> None:
        """Raise where the file is no longer where it was: what is written would be lost."""
        try:
            is_there = os.path.samestat(self._path.lstat(), os.fstat(self._file.fileno()))
        except OSError:
            is_there = False
        if not is_there:
            raise RunError(f"{self._path} was removed or replaced while the run was writing it; its rows are lost")


def is_run(directory: Path) -> bool:
    """Whether there is a run in the directory."""
    return files.is_file(directory / _CONFIG)


def is_finished(directory: Path) -> bool:
    """Whether the directory's run has reached its end."""
    return files.is_file(directory / _MANIFEST)


def newest_scores(path: Path) -> tuple[int, dict[tuple[str, int], float]]:
    """The last step in a table of evaluations, and the mean returns there by sampler and seed; 0 where it is empty."""
    last = 0
    scores: dict[tuple[str, int], float] = {}
    for row in files.read_rows(path, ("env_step", "sampler", "seed", "mean_return")):
        try:
            step, seed, score = int(row["env_step"]), int(row["seed"]), float(row["mean_return"])
        except ValueError as error:
            raise UserError(f"{path} has a row that is no evaluation ({error})") from None
        if step != last:
            last, scores = step, {}
        scores[row["sampler"], seed] = score
    return last, scores


@contextmanager
def alone_in(directory: Path, patience: float) -> Iterator[None]:
    """Keep other processes out of the directory; waits some seconds for one to leave."""
    directory.mkdir(parents=True, exist_ok=True)
    files.open_to_write(directory / _LOCK).close()  # raises where it is a link
    lock = FileLock(directory / _LOCK, timeout=patience, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"another process, or a Session of this one that was not closed, is training in {directory}; stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()  # the file stays: another process may be waiting for it


def check_directory(directory: Path, config: Training) -> None:
    """Raise where the directory belongs to another configuration or to something else."""
    if files.is_file(directory / _CONFIG):
        there, here = (_flat(asdict(_in_use(one))) for one in (_config_in(directory), config))
        refuse_another(f"{directory} holds a run with another configuration", there, here)
    elif directory.exists() and any(path.name not in (_LOCK, f".{_CONFIG}.unfinished") for path in directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no run; choose another directory")


def refuse_another(what: str, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise, with what differs, where a directory's options are not those asked for."""
    other = [
        f"{name} {there.get(name)!r} there and {here[name]!r} here" for name in here if here[name] != there.get(name)
    ]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise UserError(f"{what} ({', '.join(other[:3])}{more}); choose another directory, or delete this one")


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by their whole names, such as sac.batch_size."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _in_use(config: Training) -> Training:
    """The configuration less what changes nothing: options of what is not used, and how many processes do the work."""
    used = {field_of(name) for name in config.samplers}
    options = {name: getattr(config.sampler, name) for name in used}
    sac, ddpg = (config.sac, DDPG()) if config.agent == "sac" else (SAC(), config.ddpg)
    return replace(
        config,
        sampler=replace(SamplerOptions(), **options),
        sac=sac,
        ddpg=ddpg,
        workers=None,
        evaluation_workers=None,
    )


def write_config(directory: Path, config: Training) -> None:
    """Write config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    files.write_whole(directory / _CONFIG, json.dumps(asdict(config), indent=1) + "\n")


def read_config(directory: Path) -> Training:
    """The configuration of a run that somebody may have sent: it imports nothing that the user has not typed."""
    config = _config_in(directory)
    extensions.require_trust(config.task, str(directory / _CONFIG))
    return config


def _config_in(directory: Path) -> Training:
    path = directory / _CONFIG
    if not files.is_file(path):
        raise UserError(f"{directory} holds no run: there is no {_CONFIG} in it")
    values = files.read_json(path)
    missing = [name for name in ("task", "agent", "samplers", "seeds", "env_steps") if name not in values]
    if missing:
        raise UserError(f"{path} has no {missing[0]}; it is not this program's")
    if isinstance(values.get("sampler"), dict):  # options of samplers that are not there do not count
        known = {field_of(name) for name in TRAINABLE}
        values["sampler"] = {name: value for name, value in values["sampler"].items() if name in known}
    config: Training = from_json(Training, values, _CONFIG)
    return config


def write_manifest(directory: Path, config: Training, wall_seconds: float) -> None:
    """Where and with what the run was made."""
    manifest = {
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(),
            "processors": cores(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.device(config.device).type == "cuda" else None,
        },
        "members": [{"sampler": sampler, "seed": seed} for sampler, seed in config.members],
        "commit": _commit(),
        "wall_seconds": round(wall_seconds, 1),
    }
    files.write_whole(directory / _MANIFEST, json.dumps(manifest, indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None  # run from a source tree


def _commit() -> str | None:
    try:
        here = Path(__file__).parent
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
