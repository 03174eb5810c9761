"""Checkpoints: one directory, renamed into place when complete. Tensors in safetensors, the rest in JSON, no pickle.

The last two are kept. Each has checksums; if the newest is damaged, the one before it is used.
"""

import json
import math
import os
import shutil
import warnings
import zlib
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aes_rl import files
from aes_rl.errors import RunError, UserError
from aes_rl.options import from_json
from aes_rl.training.state import RunState
from aes_rl.training.vector.group import Resumption
from aes_rl.training.vector.simulator import Saved

VERSION = 4
KEPT = 2
"""Number of checkpoints kept."""
_TENSORS, _FACTS, _CHECKSUMS = "tensors.safetensors", "facts.json", "checksums.json"
_MAX_FACTS_BYTES = 64_000_000
"""Generous limit on the size of the facts file."""
_MAX_SIMULATOR_BYTES, _MAX_HEADER_BYTES = 8_000_000, 16_000_000
"""Limits on one member's simulator state and on the header of the tensor file."""


class TensorSlice(Protocol):
    """A tensor in a file, before it is read."""

    def get_shape(self) -> list[int]:
        """Its shape."""
        ...


class TensorFile(Protocol):
    """An open safetensors file."""

    def keys(self) -> list[str]:
        """Names of the tensors."""
        ...

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor before it is read."""
        ...

    def get_tensor(self, name: str) -> Tensor:
        """A tensor, read from the file."""
        ...


@dataclass(frozen=True)
class Facts:
    """Everything that is not a tensor."""

    version: int
    env_step: int
    update_step: int
    capacity: int
    """Slots of every member's replay."""
    seconds: float
    """Wall time so far."""
    mujoco: str | None
    """Version of MuJoCo, if simulator states are saved."""
    evaluations: int
    metrics: int
    """Current sizes in bytes of the run's tables."""
    returns: tuple[tuple[float, ...], ...]
    """Per member, the returns of the episodes that ended since the last row of metrics."""
    episode_returns: tuple[float, ...]
    """Per member, the return so far of the current episode."""
    simulators: tuple[dict[str, object] | None, ...]
    """Per member, the non-array part of the simulator state; None if the state cannot be saved."""
    update_metrics: tuple[dict[str, float], ...] = ()
    """Per member, losses and extreme weights of the last update; none in checkpoints of older versions."""


def save(run: RunState, directory: Path, sizes: dict[str, int]) -> None:
    """Write everything that the rest of the run depends on; `sizes` are the current sizes of its tables in bytes.

    The directory is complete or absent: it is written under another name, flushed to the disk and renamed.
    """
    tensors = _tensors_of(run)
    _require_finite(tensors, "agent.", f"at step {run.env_step:,}; its last checkpoint is intact")
    saved = run.environments.save()
    for member, (state, _) in saved.items():
        for name, array in (state.arrays if state else {}).items():
            tensors[f"environments.{member}.{name}"] = torch.from_numpy(array)
    facts = Facts(
        version=VERSION,
        env_step=run.env_step,
        update_step=run.update_step,
        capacity=run.config.capacity,
        seconds=run.seconds,
        mujoco=version("mujoco") if any(state for state, _ in saved.values()) else None,
        evaluations=sizes["evaluations"],
        metrics=sizes["metrics"],
        returns=tuple(map(tuple, run.returns)),
        episode_returns=tuple(total for _, total in saved.values()),
        simulators=tuple(state.facts if state else None for state, _ in saved.values()),
        update_metrics=tuple(run.update_metrics),
    )
    files.require_directory(directory)
    unfinished = directory / "unfinished"
    _remove(unfinished)
    try:
        _write(unfinished, tensors, facts)
    except (OSError, SafetensorError) as error:
        _remove(unfinished)
        raise RunError(
            f"the checkpoint of step {run.env_step:,} could not be written ({error}); make room and continue from the "
            "last one, which is intact"
        ) from error
    finished = directory / f"{run.env_step:012d}"
    _remove(finished)
    unfinished.rename(finished)
    _flush(directory)
    for older in _finished(directory)[:-KEPT]:
        _remove(older)


def exists(directory: Path) -> bool:
    """Whether there is a complete checkpoint."""
    return bool(_finished(directory))


def load(run: RunState, directory: Path, renames_damaged: bool = False) -> dict[str, int]:
    """Restore the newest intact checkpoint; returns the sizes that the run's tables had then.

    With `renames_damaged`, newer checkpoints that are damaged get another name, so that the run can continue without
    them.
    """
    newest_first = _finished(directory)[::-1]
    if not newest_first:
        raise UserError(f"{directory} holds no complete checkpoint")
    reasons: list[str] = []
    for number, path in enumerate(newest_first):
        try:
            facts, tensors = _read(run, path)
        except (OSError, UserError) as error:
            reasons.append(f"the checkpoint {path} cannot be used: {error}")
            continue
        if reasons:
            warnings.warn(f"{'; '.join(reasons)}. The run continues from step {facts.env_step:,} instead", stacklevel=2)
        for damaged in newest_first[:number] if renames_damaged else ():
            _remove(directory / f"damaged-{damaged.name}")
            damaged.rename(directory / f"damaged-{damaged.name}")
        _warn_of_other_physics(facts)
        _restore(run, facts, tensors)
        return {"evaluations": facts.evaluations, "metrics": facts.metrics}
    raise UserError(f"{'; '.join(reasons)}. Remove {directory} to start over")


def _tensors_of(run: RunState) -> dict[str, Tensor]:
    """Tensors of agent and replay; of those with an entry per slot, the live slots only."""
    live, by_slot = len(run.replay), run.replay.slot_entries()
    tensors = {f"agent.{name}": value for name, value in run.agent.state_dict().items()}
    for name, value in run.replay.state_dict().items():
        tensors[f"replay.{name}"] = value[:, :live] if name in by_slot else value
    tensors["environments.observation"] = run.observation
    return tensors


def _write(directory: Path, tensors: dict[str, Tensor], facts: Facts) -> None:
    directory.mkdir()
    save_file({name: value.contiguous().cpu() for name, value in tensors.items()}, directory / _TENSORS)
    (directory / _FACTS).write_text(json.dumps(asdict(facts), indent=1))
    checksums = {name: _checksum(directory / name) for name in (_TENSORS, _FACTS)}
    (directory / _CHECKSUMS).write_text(json.dumps(checksums, indent=1))
    for path in directory.iterdir():
        _flush(path)


def _read(run: RunState, path: Path) -> tuple[Facts, dict[str, Tensor]]:
    """Facts and tensors of a checkpoint, checked before memory is allocated for them; leaves the run unchanged."""
    checksums = files.read_json(path / _CHECKSUMS)
    _require_intact(path / _FACTS, checksums, _MAX_FACTS_BYTES)
    facts = _facts_in(path / _FACTS, run)
    shapes = _shapes(run, min(facts.env_step, run.config.capacity))
    own = sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values())
    _require_intact(
        path / _TENSORS, checksums, own + len(run.config.members) * _MAX_SIMULATOR_BYTES + _MAX_HEADER_BYTES
    )
    try:
        with safe_open(path / _TENSORS, "pt") as file:
            tensors = _tensors_in(file, shapes)
    except SafetensorError as error:
        raise UserError(f"{_TENSORS} cannot be read ({error})") from None
    for part in ("agent.", "replay.", "environments.observation"):
        _require_finite(tensors, part, "in it")
    for name, wanted in (("replay.sampler.distribution.clock", facts.env_step), ("replay.draws", facts.update_step)):
        if int(tensors[name]) != wanted:
            raise UserError(f"{name} is {int(tensors[name])}; {_FACTS} says {wanted}")
    return facts, tensors


def _require_intact(path: Path, checksums: dict[str, object], most: int) -> None:
    """Raise if a file is larger than this run's can be, or its checksum is wrong."""
    with files.open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size > most:
        raise UserError(f"{path.name} has {size:,} bytes; this run's has {most:,} at most")
    if checksums.get(path.name) != _checksum(path):
        raise UserError(f"{path.name} is damaged: its checksum differs")


def _facts_in(path: Path, run: RunState) -> Facts:
    values = files.read_json(path, _MAX_FACTS_BYTES)
    if values.get("version") != VERSION:
        raise UserError(f"its format version is {values.get('version')!r}; this program reads version {VERSION}")
    facts: Facts = from_json(Facts, values, _FACTS)
    if facts.capacity != run.config.capacity:
        raise UserError(f"it has a capacity of {facts.capacity:,}; the run's is {run.config.capacity:,}")
    members = len(run.config.members)
    for name in ("returns", "episode_returns", "simulators"):
        if len(getattr(facts, name)) != members:
            raise UserError(f"{_FACTS} has {name} of {len(getattr(facts, name))} members; the run has {members}")
    if len(facts.update_metrics) not in (0, members):
        raise UserError(f"{_FACTS} has update_metrics of {len(facts.update_metrics)} members; the run has {members}")
    if not (0 <= facts.env_step <= run.config.env_steps and facts.update_step >= 0 and facts.seconds >= 0):
        raise UserError(f"{_FACTS} has environment step {facts.env_step:,}; the run has {run.config.env_steps:,}")
    return facts


def _shapes(run: RunState, live: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of every tensor in a checkpoint with so many live slots, except those of simulators."""
    by_slot = {f"replay.{name}" for name in run.replay.slot_entries()}
    return {
        name: ((value.shape[0], live, *value.shape[2:]) if name in by_slot else tuple(value.shape), value.dtype)
        for name, value in _tensors_of(run).items()
    }


def _tensors_in(file: TensorFile, shapes: dict[str, tuple[tuple[int, ...], torch.dtype]]) -> dict[str, Tensor]:
    """All tensors of the file; raises unless the run's own are there with the right shape and type."""
    names = set(file.keys())
    for name, (shape, _) in shapes.items():
        if name not in names:
            raise UserError(f"{_TENSORS} lacks {name}; it belongs to another run or program")
        found = tuple(file.get_slice(name).get_shape())
        if found != shape:
            raise UserError(f"{_TENSORS} has {name} in the shape {found}; this run's is {shape}")
    for name in names - shapes.keys():
        if not name.startswith("environments."):
            raise UserError(f"{_TENSORS} has {name[:80]!r}, which this run does not have")
    tensors = {name: file.get_tensor(name) for name in names}
    for name, value in tensors.items():
        dtype = shapes[name][1] if name in shapes else torch.float64
        if value.dtype != dtype:
            raise UserError(f"{_TENSORS} has {name} as {value.dtype}; this run's is {dtype}")
    return tensors


def _require_finite(tensors: dict[str, Tensor], prefix: str, where: str) -> None:
    """Raise if a network has diverged: all further results would be meaningless."""
    for name, value in tensors.items():
        if name.startswith(prefix) and value.is_floating_point() and not bool(value.isfinite().all()):
            raise UserError(f"{name} is not finite {where}; look at the losses, a diverged critic is the usual cause")


def _warn_of_other_physics(facts: Facts) -> None:
    """Contacts differ between versions of MuJoCo, and with them the task (docs/decisions/mujoco.md)."""
    before, now = facts.mujoco, version("mujoco")
    if before not in (None, now):
        warnings.warn(
            f"the run was saved with MuJoCo {before} and continues with {now}, in which its task may differ; "
            f"pip install mujoco=={before} for the same physics",
            stacklevel=3,
        )


def _restore(run: RunState, facts: Facts, tensors: dict[str, Tensor]) -> None:
    run.agent.load_state_dict(_part(tensors, "agent."))
    state, by_slot = run.replay.state_dict(), run.replay.slot_entries()
    for name, saved in _part(tensors, "replay.").items():
        if name in by_slot:
            state[name][:, : saved.shape[1]] = saved.to(state[name].device)  # in place, to avoid a second buffer
        else:
            state[name] = saved.to(state[name].device)
    run.replay.load_state_dict(state)
    run.env_step, run.update_step, run.seconds = facts.env_step, facts.update_step, facts.seconds
    run.returns = [list(own) for own in facts.returns]
    run.update_metrics = [dict(own) for own in facts.update_metrics] or [{} for _ in run.config.members]
    seeds = run.episode_seeds(facts.env_step)
    run.restore_environments(
        {
            member: Resumption(
                state=None if simulator is None else Saved(_arrays(tensors, member), simulator),
                observation=tensors["environments.observation"][member].numpy(),
                episode_return=facts.episode_returns[member],
                seed=seed,
            )
            for member, (simulator, seed) in enumerate(zip(facts.simulators, seeds, strict=True))
        }
    )


def _arrays(tensors: dict[str, Tensor], member: int) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(value) for name, value in _part(tensors, f"environments.{member}.").items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _finished(directory: Path) -> list[Path]:
    """Complete checkpoints, the oldest first; raises if one is a link."""
    if not files.has_directory(directory):
        return []
    return sorted(path for path in directory.glob("[0-9]*") if files.has_directory(path))


def _checksum(path: Path) -> str:
    """CRC-32: detects damage. No checksum stored beside the data could detect a forgery."""
    value = 0
    with files.open_to_read(path) as file:
        while part := file.read(1 << 20):
            value = zlib.crc32(part, value)
    return f"{value:08x}"


def _remove(path: Path) -> None:
    """Remove a directory, file or link, but not the target of a link."""
    if files.is_directory(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
