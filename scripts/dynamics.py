"""Whether versions of MuJoCo have the same tasks: one environment step from the same states in each.

python scripts/dynamics.py step FIRST.npz                 plays random actions and keeps what came of them
python scripts/dynamics.py step OTHER.npz FIRST.npz       with another version: the same states and actions again
python scripts/dynamics.py step OTHER.npz FIRST.npz 0.5   the same with all margins of geoms multiplied
python scripts/dynamics.py compare FIRST.npz OTHER.npz …  how far apart the next states are, as Markdown

For another version than the one installed:
pip install --target DIRECTORY --no-deps mujoco==3.4.0; PYTHONPATH=DIRECTORY python scripts/dynamics.py step FIRST.npz
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
"""Next states closer than this are the same: solvers differ in their last digits."""

Array = np.ndarray[Any, Any]


def step(target: Path, before: Path | None = None, margins: float = 1.0) -> None:
    """One step of every task, from random play or from the states in another file."""
    arrays: dict[str, Any] = {"version": mujoco.__version__, "margins": margins}
    known = np.load(before) if before else None
    for task in paper.TASKS:
        environment: Any = gymnasium.make(f"{task}-v5").unwrapped
        rows = played(environment) if known is None else known[f"{task}.before"]
        environment.model.geom_margin[:] *= margins
        arrays[f"{task}.before"] = rows
        arrays[f"{task}.after"] = np.array([stepped(environment, row) for row in rows])
    np.savez_compressed(target, **arrays)


def compare(first: Path, *others: Path) -> None:
    """The share of states after which each of the others is apart from the first, median and largest difference."""
    one, rest = np.load(first), [np.load(other) for other in others]
    print(markdown_row(["task", *(f"{_named(one)} and {_named(other)}" for other in rest)]))
    print(markdown_row(["---"] * (1 + len(rest))))
    for task in paper.TASKS:
        print(markdown_row([task, *(_compared(task, one, other) for other in rest)]))


def apart(one: Array, other: Array) -> str:
    """The share of next states that differ; the median over all of them, and the largest, difference."""
    largest = np.abs(one - other).max(axis=1)
    if largest.max() <= SAME:
        return "same"
    return f"{(largest > SAME).mean():.1%} ({np.median(largest):.0e}, {largest.max():.0e})"


def _compared(task: str, one: Any, other: Any) -> str:
    if not np.array_equal(one[f"{task}.before"], other[f"{task}.before"]):
        raise SystemExit(f"{task}: the files begin with other states; make the second from the first")
    return apart(one[f"{task}.after"], other[f"{task}.after"])


def _named(file: Any) -> str:
    return str(file["version"]) + ("" if file["margins"] == 1 else f" with margins × {file['margins']:g}")


def played(environment: Any) -> Array:
    """Positions, velocities and action in random episodes; one ends where the environment says so."""
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


def stepped(environment: Any, row: Array) -> Array:
    """Positions and velocities after a step; the solver starts cold, since a warm start is not among what is kept."""
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
