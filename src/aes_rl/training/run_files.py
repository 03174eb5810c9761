"""The files of a run: its configuration, where it ran, and two tables."""

import csv
import io
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gymnasium
import torch
from filelock import FileLock, Timeout

from aes_rl import extensions, files
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import RunError, UserError
from aes_rl.machine import cores
from aes_rl.options import from_json
from aes_rl.samplers import registry
from aes_rl.samplers.registry import RULES, find, without_options
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.training.config import Training, option_key

_LOCK, _CONFIG, _MANIFEST = "lock", "config.json", "manifest.json"
_MODULES, _MOST_MODULES = "modules", 10
"""Key in config.json of the modules that the user gave, and how many of them are shown."""
_PACKAGES = ("aes-rl", "torch", "numpy", "gymnasium", "mujoco")


class Table:
    """A CSV file to which rows are appended, and which a resume truncates to its size at the checkpoint."""

    def __init__(self, path: Path, columns: tuple[str, ...], size: int | None):
        """Create the file, or continue it after its first `size` bytes."""
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

    def add(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Write rows and flush them to the operating system."""
        self._require_in_place()
        self._writer.writerows(rows)
        self._file.flush()

    def size(self) -> int:
        """Bytes written so far, after a flush to the disk."""
        self._require_in_place()
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _require_in_place(self) -> None:
        """Raise if the file was moved or removed: what is written would be lost."""
        try:
            is_there = os.path.samestat(self._path.lstat(), os.fstat(self._file.fileno()))
        except OSError:
            is_there = False
        if not is_there:
            raise RunError(f"{self._path} was removed or replaced while the run was writing it; its rows are lost")


def is_run(directory: Path) -> bool:
    """Whether the directory holds a run."""
    return files.is_file(directory / _CONFIG)


def is_finished(directory: Path) -> bool:
    """Whether the directory holds a finished run."""
    return files.is_file(directory / _MANIFEST)


def reopen(directory: Path) -> None:
    """Mark the directory's run as unfinished."""
    (directory / _MANIFEST).unlink(missing_ok=True)


def newest_scores(path: Path) -> tuple[int, dict[tuple[str, int], float]]:
    """The last step in a table of evaluations (0 if it is empty), and its mean returns by sampler and seed."""
    last = 0
    scores: dict[tuple[str, int], float] = {}
    for row in files.read_rows(path, ("env_step", "sampler", "seed", "mean_return")):
        try:
            step, seed, score = int(row["env_step"]), int(row["seed"]), float(row["mean_return"])
        except ValueError as error:
            raise UserError(f"{path} has a row that is not an evaluation ({error})") from None
        if step != last:
            last, scores = step, {}
        scores[row["sampler"], seed] = score
    return last, scores


def captured_fractions(path: Path, after: int) -> dict[tuple[str, int], list[float]]:
    """The readings of the captured fraction after an environment step, by sampler and seed."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in files.read_rows(path, ("env_step", "sampler", "seed", "metric", "value")):
        try:
            if row["metric"] == "captured_fraction" and int(row["env_step"]) > after:
                found.setdefault((row["sampler"], int(row["seed"])), []).append(float(row["value"]))
        except ValueError as error:
            raise UserError(f"{path} has a row that is not a metric ({error})") from None
    return found


@contextmanager
def exclusive_use(directory: Path, timeout: float) -> Iterator[None]:
    """Keep other processes out of the directory; waits at most `timeout` seconds for one to leave."""
    directory.mkdir(parents=True, exist_ok=True)
    files.open_to_write(directory / _LOCK).close()  # raises if it is a link
    lock = FileLock(directory / _LOCK, timeout=timeout, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"another process, or a Runner of this process that was not closed, trains in {directory}; stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()  # the file stays: another process may be waiting for it


def settled(directory: Path, config: Training, may_extend: bool = False) -> Training:
    """The configuration to train with in a directory; raises if it holds another run, or something else.

    Options of None that follow from env_steps have the numbers of the directory's run, if there is one. If `may_extend`
    is true, env_steps may be larger than that run's.
    """
    if files.is_file(directory / _CONFIG):
        begun = parse_config(directory)
        # Equal options may differ in effect, such as those of a sampler that only one of the two uses: they are not
        # what has changed.
        before, after = (_flattened(asdict(one)) for one in (begun, config))
        changed = [name for name, value in after.items() if value != before.get(name)]
        config = config.resolved(begun)
        there, here = (_flattened(asdict(_effective(one))) for one in (begun.resolved(), config))
        if may_extend and config.env_steps > begun.env_steps:
            changed.remove("env_steps")
        problem = f"{directory} holds a run with another configuration"
        require_same_options(problem, there, {name: here[name] for name in changed})
    elif directory.exists() and any(path.name not in (_LOCK, f".{_CONFIG}.unfinished") for path in directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no run; choose another directory")
    return config.resolved()


def require_same_options(problem: str, there: dict[str, object], here: dict[str, object]) -> None:
    """Raise, naming the differences, if a directory's options are not the requested ones."""
    differences = [
        f"{name} {there.get(name)!r} there and {here[name]!r} here" for name in here if here[name] != there.get(name)
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise UserError(f"{problem} ({', '.join(differences[:3])}{more}); choose another directory, or delete this one")


def _flattened(options: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Options by full name, such as sac.batch_size."""
    flat: dict[str, object] = {}
    for name, value in options.items():
        flat |= _flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _effective(config: Training) -> Training:
    """The configuration with every option that cannot change the results at its default."""
    used = {option_key(name) for name in config.samplers}
    sac, ddpg = (config.sac, DDPG()) if config.agent == "sac" else (SAC(), config.ddpg)
    return replace(
        config,
        sampler={name: options for name, options in config.sampler.items() if name in used},
        sac=sac,
        ddpg=ddpg,
        workers=None,
        evaluation_workers=None,
    )


def write_config(directory: Path, config: Training) -> None:
    """Write config.json, with the names of the modules that the user gave."""
    directory.mkdir(parents=True, exist_ok=True)
    values = asdict(config) | ({_MODULES: extensions.names()} if extensions.names() else {})
    files.write_whole(directory / _CONFIG, json.dumps(values, indent=1) + "\n")


def read_config(directory: Path) -> Training:
    """The configuration of a run from any source; imports no module unless the user has typed its name."""
    config = parse_config(directory)
    require_trust(directory, config)
    return config


def require_trust(directory: Path, config: Training) -> None:
    """Raise if the task of a directory's run would import a module that the user did not type."""
    extensions.require_trust(config.task, str(directory / _CONFIG))


def parse_config(directory: Path) -> Training:
    """The configuration of a run from any source, whose task may not be trusted yet; imports no module."""
    path = directory / _CONFIG
    if not files.is_file(path):
        raise UserError(f"{directory} holds no run: there is no {_CONFIG} in it")
    values = files.read_json(path)
    missing = [name for name in ("task", "agent", "samplers", "seeds", "env_steps") if name not in values]
    if missing:
        raise UserError(f"{path} has no {missing[0]}; it was not written by aes-rl")
    _require_modules(path, values.pop(_MODULES, []), values)
    return from_json(Training, values | {"sampler": _sampler_options(values)}, _CONFIG)


def _require_modules(path: Path, modules: object, values: Mapping[str, object]) -> None:
    """Raise if a sampler or task is unknown because a module that the run was started with is not imported.

    The module is named and not imported: the file may come from a stranger.
    """
    given = [name for name in modules if extensions.is_name(name)] if isinstance(modules, list) else []
    missing = "".join(f" --module {name}" for name in given[:_MOST_MODULES] if name not in extensions.names())
    if not missing:
        return
    unknown = [f"sampler {name!r}" for name in _named_samplers(values) if name not in registry.names()]
    task = values["task"]
    if isinstance(task, str) and ":" not in task and task not in gymnasium.registry:
        unknown.append(f"task {task!r}")
    if unknown:
        raise UserError(
            f"{path} has the {unknown[0]}, which is not known here; the run was started with{missing}: if you trust "
            "what that imports, add it to the command"
        )


def _named_samplers(values: Mapping[str, object]) -> list[str]:
    samplers = values["samplers"]
    return [without_options(text) for text in samplers if isinstance(text, str)] if isinstance(samplers, list) else []


def _sampler_options(values: Mapping[str, object]) -> dict[str, SamplerConfig]:
    """Sampler options in a config.json; those of samplers that are neither used nor known here are ignored."""
    given = values.get("sampler", {})
    if not isinstance(given, dict):
        raise UserError(f"{_CONFIG}.sampler is a JSON {type(given).__name__}; it must be an object of options")
    types = {option_key(name): find(name).config_type for name in [*RULES, *_named_samplers(values)]}
    where = f"{_CONFIG}.sampler"
    return {key: from_json(types[key], own, f"{where}.{key}") for key, own in given.items() if key in types}


def write_manifest(directory: Path, config: Training, wall_seconds: float) -> None:
    """Write manifest.json: versions, machine, members, commit and wall time."""
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
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
