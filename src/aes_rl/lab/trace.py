"""Recorded problems: the gradient norms of some slots at many moments of a real training run.

Of every moment, for every so many-th slot: the squared norm of its gradient under some draws of the update's noise, and
its TD error. The logarithms are kept, in half precision. The slots are written in turn, so the clock of insertions says
which content each of them holds.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from aes_rl.agents import AbstractAgent
from aes_rl.lab.measure import looks
from aes_rl.replay import Replay

Array = np.ndarray[Any, Any]
VERSION = 1


@dataclass(frozen=True)
class Facts:
    """What was recorded."""

    task: str
    agent: str
    seed: int
    capacity: int
    batch_size: int
    warm_up_steps: int
    """Insertions before the first update; one update an insertion after that."""
    thinning: int
    """Every so many-th slot is recorded."""
    version: int = VERSION


@dataclass(frozen=True)
class Trace:
    """A recorded problem."""

    facts: Facts
    insertions: Array
    """Transitions stored by each moment, [T]."""
    logs: Array
    """log d(i) at every moment under every draw of the noise, [T, K, m]; −∞ where the slot was empty."""
    errors: Array
    """log |δ(i)| likewise, [T, K, m]."""

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.facts.task} {self.facts.agent}"

    def thinned(self, factor: int, every: int = 1) -> "Trace":
        """Every `factor`-th of the recorded slots, at every `every`-th moment."""
        facts = Facts(**{**asdict(self.facts), "thinning": self.facts.thinning * factor})
        times = slice(every - 1, None, every)
        return Trace(facts, self.insertions[times], self.logs[times, :, ::factor], self.errors[times, :, ::factor])

    def save(self, path: Path) -> None:
        """Write one file."""
        tensors = {"insertions": self.insertions, "logs": self.logs, "errors": self.errors}
        contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        save_file(contiguous, path, metadata={"facts": json.dumps(asdict(self.facts))})


def load(path: Path) -> Trace:
    """A recorded problem from its file, or from the folder that a run in progress writes."""
    parts = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not parts or not parts[0].exists():
        raise ValueError(f"{path} holds no recorded problem; record one with aes-rl train --trace-every")
    with safe_open(parts[0], "numpy") as file:
        known = json.loads((file.metadata() or {}).get("facts", "{}"))
    if known.get("version") != VERSION:
        raise ValueError(f"{path} has version {known.get('version')}; this program reads {VERSION}")
    pieces = [load_file(part) for part in parts]
    slots = pieces[-1]["errors"].shape[-1]
    whole = {name: np.concatenate([_widened(piece[name], slots) for piece in pieces]) for name in pieces[0]}
    return Trace(Facts(**known), **whole)


def take(agent: AbstractAgent, replay: Replay, facts: Facts, directory: Path, noise_draws: int = 4) -> None:
    """Record the first member's slots as they are now, as one more moment in a directory."""
    slots = np.arange(0, len(replay), facts.thinning)
    insertions = int(replay.insertions)
    logs, errors = np.zeros((2, 1, noise_draws if agent.noise_size(1) else 1, len(slots)))
    with np.errstate(divide="ignore"):
        for look in looks(agent, replay, slots, noise_draws, seed=insertions):
            assert look.signals.td_error is not None
            total = sum(norm[0].double().cpu().numpy() for norm in look.signals.gradient_norm.values())
            logs[0, look.draw, look.part] = np.log(total)
            errors[0, look.draw, look.part] = np.log(look.signals.td_error[0].abs().double().cpu().numpy())
    moment = Trace(facts, np.array([insertions]), logs.astype(np.float16), errors.astype(np.float16))
    directory.mkdir(parents=True, exist_ok=True)
    moment.save(directory / f"{insertions:012d}.safetensors")


def _widened(array: Array, slots: int) -> Array:
    """Slots that were still empty, or the array itself where it has none."""
    missing = slots - array.shape[-1]
    if array.ndim == 1 or missing == 0:
        return array
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], constant_values=-np.inf)
