"""Whether two versions of MuJoCo have the same tasks: one environment step from the same states in each.

python scripts/dynamics.py step FIRST.npz                     plays random actions and keeps what came of them
python scripts/dynamics.py step SECOND.npz FIRST.npz          with another version: the same states and actions again
python scripts/dynamics.py step SECOND.npz FIRST.npz 0.5      the same with all margins of geoms multiplied
python scripts/dynamics.py compare FIRST.npz SECOND.npz       how far apart the next states are, as Markdown
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
States = list[tuple[Array, Array, Array]]
"""Positions, velocities and action."""


def step(target: Path, before: Path | None = None, margins: float = 1.0) -> None:
    """One step of every task, from random play or from the states in another file."""
    arrays = {}
    known = np.load(before) if before else {}
    for task in paper.TASKS:
        environment: Any = gymnasium.make(f"{task}-v5").unwrapped
        model = environment.model
        sizes = np.cumsum([model.nq, model.nv, model.nu])
        states = _unpacked(known[f"{task}.before"], sizes) if before else _played(environment)
        model.geom_margin[:] *= margins
        arrays[f"{task}.before"] = np.array([np.concatenate(state) for state in states])
        arrays[f"{task}.after"] = np.array([_stepped(environment, *state) for state in states])
    np.savez_compressed(target, version=mujoco.__version__, **arrays)


def compare(first: Path, second: Path) -> None:
    """The share of states after which two files differ, and by how much."""
    one, other = np.load(first), np.load(second)
    print(markdown_row(["task", f"apart in {one['version']} and {other['version']}", "median", "largest"]))
    print("|---|---|---|---|")
    for task in paper.TASKS:
        if not np.array_equal(one[f"{task}.before"], other[f"{task}.before"]):
            raise SystemExit(f"{task}: the two files begin with other states; make the second from the first")
        apart = np.abs(one[f"{task}.after"] - other[f"{task}.after"]).max(axis=1)
        cells = [f"{(apart > SAME).mean():.0%}", f"{np.median(apart):.0e}", f"{apart.max():.0e}"]
        print(markdown_row([task, *cells]))


def _played(environment: Any) -> States:
    """States of random episodes; one ends where the environment says so."""
    generator, states = np.random.default_rng(0), []
    low, high = environment.model.actuator_ctrlrange.T
    for episode in range(EPISODES):
        environment.reset(seed=episode)
        for _ in range(STEPS):
            action = generator.uniform(low, high)
            states.append((environment.data.qpos.copy(), environment.data.qvel.copy(), action))
            if environment.step(action)[2]:
                break
    return states


def _stepped(environment: Any, positions: Array, velocities: Array, action: Array) -> Array:
    model, data = environment.model, environment.data
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:], data.ctrl[:] = positions, velocities, action
    mujoco.mj_step(model, data, environment.frame_skip)
    return np.concatenate([data.qpos, data.qvel])


def _unpacked(rows: Array, sizes: Array) -> States:
    return [tuple(np.split(row, sizes[:2])) for row in rows]  # type: ignore[misc]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["step", target]:
            step(Path(target))
        case ["step", target, before]:
            step(Path(target), Path(before))
        case ["step", target, before, margins]:
            step(Path(target), Path(before), float(margins))
        case ["compare", first, second]:
            compare(Path(first), Path(second))
        case _:
            raise SystemExit(__doc__)
