"""Checkpoints: one directory, renamed into place when complete. Tensors in safetensors, the rest in JSON, no pickle."""

import json
import os
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from aes_rl.errors import UserError
from aes_rl.training.run import Run
from aes_rl.training.simulator import Saved

VERSION = 2


def save(run: Run, directory: Path, files: dict[str, int]) -> None:
    """Write everything the rest of the run depends on; `files` are the sizes in bytes of the run's tables by now.

    The directory is complete or absent: it is written under another name, flushed to the disk and renamed.
    """
    live = len(run.replay)
    tensors = {f"agent.{name}": value for name, value in run.agent.state_dict().items()}
    for name, value in run.replay.state_dict().items():
        tensors[f"replay.{name}"] = value[:, :live] if _is_by_slot(name) else value
    saved = run.environments.save()
    tensors["environments.observation"] = run.observation
    for member, (state, _) in saved.items():
        for name, array in (state.arrays if state else {}).items():
            tensors[f"environments.{member}.{name}"] = torch.from_numpy(array)
    facts = {
        "version": VERSION,
        "env_step": run.env_step,
        "update_step": run.update_step,
        "seconds": run.seconds,
        "returns": run.returns,
        "mujoco": version("mujoco") if any(state for state, _ in saved.values()) else None,
        "files": files,
        "environments": [
            {"facts": state.facts if state else None, "episode_return": total} for state, total in saved.values()
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    save_file({name: value.contiguous().cpu() for name, value in tensors.items()}, unfinished / "tensors.safetensors")
    (unfinished / "facts.json").write_text(json.dumps(facts, indent=1))
    for path in unfinished.iterdir():
        _flush(path)
    finished = directory / f"{run.env_step:012d}"
    shutil.rmtree(finished, ignore_errors=True)
    unfinished.rename(finished)
    _flush(directory)
    for older in _finished(directory)[:-1]:
        shutil.rmtree(older)


def exists(directory: Path) -> bool:
    """Whether there is a complete checkpoint."""
    return bool(_finished(directory))


def load(run: Run, directory: Path) -> dict[str, int]:
    """Continue from the newest complete checkpoint; the sizes that the run's tables had then."""
    if not exists(directory):
        raise UserError(f"{directory} holds no complete checkpoint")
    newest = _finished(directory)[-1]
    try:
        facts = json.loads((newest / "facts.json").read_text())
        tensors = load_file(newest / "tensors.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"the checkpoint {newest} cannot be read ({error}); remove it to start anew") from error
    if facts.get("version") != VERSION:
        raise UserError(f"the checkpoint {newest} has version {facts.get('version')}; this program reads {VERSION}")
    _warn_of_other_physics(facts)
    try:
        _restore(run, facts, tensors)
    except KeyError as error:
        raise UserError(f"the checkpoint {newest} lacks {error}; it is another program's or incomplete") from error
    files: dict[str, int] = facts["files"]
    return files


def _warn_of_other_physics(facts: dict[str, Any]) -> None:
    """The same task is another one where contacts are (docs/decisions/mujoco.md)."""
    before, now = facts.get("mujoco"), version("mujoco")  # older checkpoints do not say
    if before not in (None, now):
        warnings.warn(
            f"the run was saved with MuJoCo {before} and goes on with {now}, where its task may not be the same; "
            f"pip install mujoco=={before} for the same physics",
            stacklevel=3,
        )


def _restore(run: Run, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    run.agent.load_state_dict(_part(tensors, "agent."))
    state = {}
    for name, value in run.replay.state_dict().items():
        if name == "heard" and f"replay.{name}" not in tensors:  # made before feedback's ages were kept
            state[name] = torch.zeros_like(value)
            continue
        saved = tensors[f"replay.{name}"].to(value.device)
        if _is_by_slot(name):
            whole = torch.zeros_like(value)
            whole[:, : saved.shape[1]] = saved
            saved = whole
        state[name] = saved
    run.replay.load_state_dict(state)
    environments = {}
    for member, known in enumerate(facts["environments"]):
        arrays = {name: np.asarray(value) for name, value in _part(tensors, f"environments.{member}.").items()}
        own = None if known["facts"] is None else Saved(arrays, known["facts"])
        environments[member] = (own, known["episode_return"])
    run.environments.restore(environments, tensors["environments.observation"].numpy())
    run.observation.copy_(tensors["environments.observation"])
    run.env_step, run.update_step, run.seconds = facts["env_step"], facts["update_step"], facts["seconds"]
    run.returns = facts.get("returns", run.returns)  # older checkpoints have none


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _is_by_slot(name: str) -> bool:
    """Whether a tensor has one entry a slot; those of empty slots are zero and need not be saved."""
    return name.split(".")[-1] in ("rows", "masses", "stamps", "sums", "logs", "seen", "heard")


def _finished(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("[0-9]*") if path.is_dir())


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
