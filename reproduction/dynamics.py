"""Compare the dynamics of MuJoCo versions: one environment step from the same states with each version.

python reproduction/dynamics.py step FIRST.npz                 records states, random actions and next states
python reproduction/dynamics.py step OTHER.npz FIRST.npz       repeats them with another version
python reproduction/dynamics.py step OTHER.npz FIRST.npz 0.5   the same with all contact margins multiplied by 0.5
python reproduction/dynamics.py compare FIRST.npz OTHER.npz …  prints how far the next states differ, as Markdown

To use a version other than the installed one:
pip install --target DIRECTORY --no-deps mujoco==3.4.0
PYTHONPATH=DIRECTORY python reproduction/dynamics.py step FIRST.npz
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

from aes_rl import paper
from aes_rl.report.tables import markdown_row

EPISODES, STEPS = 40, 100
SAME = 1e-6
"""Next states closer than this count as equal: solvers differ in the last digits."""

Array = np.ndarray[Any, Any]


def step(target: Path, before: Path | None = None, margins: float = 1.0) -> None:
    """Record one step of every task, from states of random play or from those in another file."""
    arrays: dict[str, Any] = {"version": mujoco.__version__, "margins": margins}
    known = np.load(before) if before else None
    for task in paper.TASKS:
        environment: Any = gymnasium.make(f"{task}-v5").unwrapped
        rows = random_states(environment) if known is None else known[f"{task}.before"]
        environment.model.geom_margin[:] *= margins
        arrays[f"{task}.before"] = rows
        arrays[f"{task}.after"] = np.array([next_state(environment, row) for row in rows])
    np.savez_compressed(target, **arrays)


def compare(first: Path, *others: Path) -> None:
    """Print, for each other file, the fraction of next states that differ from the first file's, and by how much."""
    one, rest = np.load(first), [np.load(other) for other in others]
    print(markdown_row(["task", *(f"{_label(one)} and {_label(other)}" for other in rest)]))
    print(markdown_row(["---"] * (1 + len(rest))))
    for task in paper.TASKS:
        print(markdown_row([task, *(_cell(task, one, other) for other in rest)]))


def difference(one: Array, other: Array) -> str:
    """The fraction of next states that differ, and in parentheses the median and the largest difference over all."""
    largest = np.abs(one - other).max(axis=1)
    if largest.max() <= SAME:
        return "same"
    return f"{(largest > SAME).mean():.1%} ({np.median(largest):.0e}, {largest.max():.0e})"


def _cell(task: str, one: Any, other: Any) -> str:
    if not np.array_equal(one[f"{task}.before"], other[f"{task}.before"]):
        raise SystemExit(f"{task}: the files start from different states; record the second one from the first")
    return difference(one[f"{task}.after"], other[f"{task}.after"])


def _label(file: Any) -> str:
    return str(file["version"]) + ("" if file["margins"] == 1 else f" with margins × {file['margins']:g}")


def random_states(environment: Any) -> Array:
    """Positions, velocities and action at every step of random episodes; an episode ends at termination."""
    generator, rows = np.random.default_rng(0), []
    low, high = environment.model.actuator_ctrlrange.T
    for episode in range(EPISODES):
        environment.reset(seed=episode)
        for _ in range(STEPS):
            action = generator.uniform(low, high)
            rows.append(np.concatenate([environment.data.qpos, environment.data.qvel, action]))
            if environment.step(action)[2]:
                break
    return np.array(rows)


def next_state(environment: Any, row: Array) -> Array:
    """Positions and velocities after one step. The solver starts cold: a recorded state has no warm start."""
    model, data = environment.model, environment.data
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:], data.ctrl[:] = np.split(row, [model.nq, model.nq + model.nv])
    mujoco.mj_step(model, data, environment.frame_skip)
    return np.concatenate([data.qpos, data.qvel])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["step", target]:
            step(Path(target))
        case ["step", target, before]:
            step(Path(target), Path(before))
        case ["step", target, before, margins]:
            step(Path(target), Path(before), float(margins))
        case ["compare", first, *others] if others:
            compare(Path(first), *map(Path, others))
        case _:
            raise SystemExit(__doc__)
