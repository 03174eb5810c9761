"""Recorded problems: the gradient norms of some slots at many moments of a real training run.

Of every moment, for every so many-th slot: the squared norm of its gradient of each network under some draws of the
update's noise, and its TD error. Logarithms are kept, in half precision. The slots are written in turn, so the clock
of insertions says which content each of them holds.
"""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save

from aes_rl import files
from aes_rl.agents import AbstractAgent
from aes_rl.errors import UserError
from aes_rl.lab.measure import looks
from aes_rl.replay import Replay

Array = np.ndarray[Any, Any]
VERSION = 2
_LOGS = "logs."
"""Before a network's name in a file."""


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
    networks: dict[str, Array]
    """log d(i) of each network at every moment under every draw of the noise, [T, K, m]; −∞ where a slot was empty."""
    errors: Array
    """log |δ(i)| likewise, [T, K, m]."""

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.facts.task} {self.facts.agent}"

    @cached_property
    def logs(self) -> Array:
        """Log d(i) of all networks together."""
        total: Array = np.logaddexp.reduce([part.astype(np.float32) for part in self.networks.values()])
        return total

    def thinned(self, factor: int, every: int = 1) -> "Trace":
        """Every `factor`-th of the recorded slots, at every `every`-th moment."""
        facts = Facts(**{**asdict(self.facts), "thinning": self.facts.thinning * factor})
        times = slice(every - 1, None, every)
        networks = {name: part[times, :, ::factor] for name, part in self.networks.items()}
        return Trace(facts, self.insertions[times], networks, self.errors[times, :, ::factor])

    def save(self, path: Path) -> None:
        """Write one file."""
        logs = {f"{_LOGS}{name}": part for name, part in self.networks.items()}
        tensors = {"insertions": self.insertions, "errors": self.errors, **logs}
        contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        files.write_whole(path, save(contiguous, metadata={"facts": json.dumps(asdict(self.facts))}))


def load(path: Path) -> Trace:
    """A recorded problem from its file, or from the folder that a run in progress writes."""
    parts = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not parts or not parts[0].exists():
        raise UserError(f"{path} holds no recorded problem; record one with aes-rl train --trace-every")
    with safe_open(parts[0], "numpy") as file:
        known = json.loads((file.metadata() or {}).get("facts", "{}"))
    if known.get("version") != VERSION:
        raise UserError(f"{path} has version {known.get('version')}; this program reads {VERSION}")
    pieces = [load_file(part) for part in parts]
    slots = pieces[-1]["errors"].shape[-1]
    whole = {name: np.concatenate([_widened(piece[name], slots) for piece in pieces]) for name in pieces[0]}
    networks = {name.removeprefix(_LOGS): part for name, part in whole.items() if name.startswith(_LOGS)}
    return Trace(Facts(**known), whole["insertions"], networks, whole["errors"])


def take(agent: AbstractAgent, replay: Replay, facts: Facts, directory: Path, noise_draws: int = 4) -> None:
    """Record the first member's slots as they are now, as one more moment in a directory."""
    slots = np.arange(0, len(replay), facts.thinning)
    insertions = int(replay.insertions)
    shape = (1, noise_draws if agent.noise_size(1) else 1, len(slots))
    networks, errors = {name: np.zeros(shape) for name in agent.trained()}, np.zeros(shape)
    with np.errstate(divide="ignore"):
        for look in looks(agent, replay, slots, noise_draws, seed=insertions):
            assert look.signals.td_error is not None
            for name, norm in look.signals.gradient_norm.items():
                networks[name][0, look.draw, look.part] = np.log(norm[0].double().cpu().numpy())
            errors[0, look.draw, look.part] = np.log(look.signals.td_error[0].abs().double().cpu().numpy())
    halves = {name: part.astype(np.float16) for name, part in networks.items()}
    moment = Trace(facts, np.array([insertions]), halves, errors.astype(np.float16))
    files.require_directory(directory)
    moment.save(directory / f"{insertions:012d}.safetensors")


def _widened(array: Array, slots: int) -> Array:
    """Slots that were still empty, or the array itself where it has none."""
    missing = slots - array.shape[-1]
    if array.ndim == 1 or missing == 0:
        return array
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], constant_values=-np.inf)
