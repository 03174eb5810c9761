"""Recorded problems: the gradient norms of some slots at many moments of a real training run.

At each moment, for every k-th slot: the squared norm of its gradient per network under several samples of the update's
noise, and its TD error, as logarithms in half precision. The run overwrites the oldest slot first, so the number of
insertions determines which transition a slot holds.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from aes_rl import checks, files
from aes_rl.agents import AbstractAgent
from aes_rl.errors import UserError
from aes_rl.lab.measure import signals_by_chunk
from aes_rl.options import from_json
from aes_rl.replay import Replay

Number = TypeVar("Number", bound=np.generic)
PROBLEMS = Path(__file__).parents[1] / "problems"
"""The recorded problems shipped with the package."""
VERSION = 2
_MOST_NUMBERS = 500_000_000
"""A record with more norms and errors is rejected: a gigabyte."""
_LOGS = "logs."
"""Prefix of a network's name in a file."""


@dataclass(frozen=True)
class Facts:
    """What was recorded."""

    task: str
    agent: str
    seed: int
    capacity: int
    batch_size: int
    warm_up_steps: int
    """Insertions before the first update; one update per insertion after that."""
    thinning: int
    """k: every k-th slot is recorded."""
    version: int = VERSION


@dataclass(frozen=True)
class RecordedProblem:
    """Gradient norms and TD errors over a training run."""

    facts: Facts
    insertions: NDArray[np.int64]
    """Transitions stored by each moment, [T]."""
    networks: dict[str, NDArray[np.float16]]
    """log d(i) of each network at each moment under each noise sample, [T, K, m]; −∞ where a slot was empty."""
    errors: NDArray[np.float16]
    """log |δ(i)|, [T, K, m]; −∞ where a slot was empty."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.facts.task} {self.facts.agent}"

    @cached_property
    def logs(self) -> NDArray[np.float32]:
        """Log d(i), summed over networks."""
        total: NDArray[np.float32] = np.logaddexp.reduce([part.astype(np.float32) for part in self.networks.values()])
        return total

    def thinned(self, factor: int, every: int = 1) -> "RecordedProblem":
        """Every `factor`-th of the recorded slots, at every `every`-th moment."""
        checks.count("thinning", factor)
        checks.count("every", every)
        if every > len(self.insertions):
            raise UserError(f"every is {every}; the record has {len(self.insertions)} moments")
        facts = Facts(**{**asdict(self.facts), "thinning": self.facts.thinning * factor})
        times = slice(every - 1, None, every)
        networks = {name: part[times, :, ::factor] for name, part in self.networks.items()}
        return RecordedProblem(facts, self.insertions[times], networks, self.errors[times, :, ::factor])

    def save(self, path: Path) -> None:
        """Write one file."""
        logs = {f"{_LOGS}{name}": part for name, part in self.networks.items()}
        tensors = {"insertions": self.insertions, "errors": self.errors, **logs}
        contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        files.write_whole(path, save(contiguous, metadata={"facts": json.dumps(asdict(self.facts))}))


def record_moment(agent: AbstractAgent, replay: Replay, facts: Facts, directory: Path, noise_samples: int = 4) -> None:
    """Write the norms of the first member's slots at this moment to a new file in a directory."""
    slots = np.arange(0, len(replay), facts.thinning)
    insertions = int(replay.insertions)
    shape = (1, noise_samples if agent.noise_size(1) else 1, len(slots))
    networks, errors = {name: np.zeros(shape) for name in agent.trained()}, np.zeros(shape)
    with np.errstate(divide="ignore"):
        for chunk in signals_by_chunk(agent, replay, slots, noise_samples, seed=insertions):
            assert chunk.signals.td_error is not None
            for name, norm in chunk.signals.gradient_norm.items():
                networks[name][0, chunk.noise_sample, chunk.part] = np.log(norm[0].double().cpu().numpy())
            magnitude = chunk.signals.td_error[0].abs().double().cpu().numpy()
            errors[0, chunk.noise_sample, chunk.part] = np.log(magnitude)
    halves = {name: part.astype(np.float16) for name, part in networks.items()}
    moment = RecordedProblem(facts, np.array([insertions]), halves, errors.astype(np.float16))
    files.require_directory(directory)
    moment.save(directory / f"{insertions:012d}.safetensors")


def load(path: Path) -> RecordedProblem:
    """A recorded problem from its file, or from the directory of moments that a training run writes."""
    parts = sorted(part for part in path.glob("*.safetensors") if files.is_file(part)) if path.is_dir() else [path]
    if not parts or not parts[0].is_file():
        raise UserError(f"{path} holds no recorded problem; record one with aes-rl train --trace-every")
    try:
        facts = _facts_of(parts[0])
        slots = _checked_slots(parts)
        pieces = [load_file(part) for part in parts]
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a recorded problem, or damaged ({error})") from None
    whole = {name: np.concatenate([_padded(piece[name], slots) for piece in pieces]) for name in pieces[0]}
    networks = {name.removeprefix(_LOGS): part for name, part in whole.items() if name.startswith(_LOGS)}
    return RecordedProblem(facts, whole["insertions"], networks, whole["errors"])


def _facts_of(path: Path) -> Facts:
    with safe_open(path, "numpy") as file:
        text = (file.metadata() or {}).get("facts", "{}")
    try:
        known = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} has facts that are not valid JSON ({error})") from None
    found = known.get("version") if isinstance(known, dict) else None
    if found != VERSION:
        raise UserError(f"{path} has version {found}; this program reads version {VERSION}")
    facts = from_json(Facts, known, f"{path}: facts")
    for name in ("capacity", "batch_size", "thinning"):
        checks.count(f"{path}: {name}", getattr(facts, name))
    return facts


def _checked_slots(parts: Sequence[Path]) -> int:
    """Recorded slots of the last part, once the headers of all parts fit together and into memory."""
    slots, numbers, names = 0, 0, frozenset[str]()
    for path in parts:
        with safe_open(path, "numpy") as file:
            headers = {name: file.get_slice(name) for name in sorted(file.keys())}
        shapes = {name: tuple(header.get_shape()) for name, header in headers.items()}
        own = frozenset(shapes)
        names = names or own
        logs = own - {"insertions", "errors"}
        moments, *inner = shapes.get("errors", (0,))
        is_record = len(logs) + 2 == len(own) == len(names & own) and all(name.startswith(_LOGS) for name in logs)
        if not (
            is_record
            and names == own
            and len(inner) == 2
            and inner[1] >= slots
            and 0 not in (moments, *inner)
            and {shapes[name] for name in logs | {"errors"}} == {shapes["errors"]}
            and {headers[name].get_dtype() for name in logs | {"errors"}} == {"F16"}
            and (shapes["insertions"], headers["insertions"].get_dtype()) == ((moments,), "I64")
        ):
            raise UserError(f"{path} does not hold a recorded problem, or not the next moments of {parts[0]}")
        slots, numbers = inner[1], numbers + moments * inner[0] * len(own)
        if numbers * slots > _MOST_NUMBERS:
            raise UserError(f"{path} takes the record beyond {_MOST_NUMBERS:,} numbers; record fewer slots or moments")
    return slots


def find(paths: Sequence[Path]) -> list[RecordedProblem]:
    """The recorded problems in files and directories, or shipped under a name."""
    found = [file for path in paths for file in _files(path)]
    if not found:
        raise UserError(
            f"no recorded problem in {', '.join(map(str, paths))}; record one with aes-rl train --trace-every and "
            "aes-rl lab pack"
        )
    problems = [load(file) for file in found]
    names = [problem.name for problem in problems]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{names.count(name)} of the recorded problems are called {name}; give one at a time")
    return problems


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    if path.exists():
        return [path]
    shipped = {file.stem: file for file in sorted(PROBLEMS.glob("*.safetensors"))}
    if str(path) not in shipped:
        raise UserError(f"there is no recorded problem {path}; the shipped problems are {', '.join(shipped)}")
    return [shipped[str(path)]]


def _padded(array: NDArray[Number], slots: int) -> NDArray[Number]:
    """The array with −∞ for the slots that were still empty."""
    missing = slots - array.shape[-1]
    if array.ndim == 1 or missing == 0:
        return array
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], constant_values=-np.inf)
