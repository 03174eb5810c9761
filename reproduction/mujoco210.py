"""Compare the tasks of mujoco2.py with MuJoCo 2.1.0 itself, the oldest version available without a licence.

pip download --no-deps --ignore-requires-python free-mujoco-py==2.1.6     its library, for Linux
python reproduction/mujoco210.py WHEEL ASSETS               prints how far the next states differ, as Markdown
python reproduction/mujoco210.py WHEEL ASSETS TARGET.npz    also saves some states and the next states of 2.1.0, for
                                                            reproduction/tests/mujoco210.npz

ASSETS is the folder gym/envs/mujoco/assets of Gym 0.17.3, whose model files the published runs used. A C compiler is
required.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from dynamics import Array, difference, next_state, random_states

from aes_rl.report.tables import markdown_row

TASKS = {
    "Hopper-v4": "hopper.xml",
    "mujoco2:Hopper-v3": "hopper.xml",
    "Walker2d-v4": "walker2d.xml",
    "mujoco2:Walker2d-v3": "walker2d.xml",
    "HalfCheetah-v4": "half_cheetah.xml",
    "Reacher-v4": "reacher.xml",
}
"""Model file of each task."""
LIBRARY = "mujoco_py/binaries/linux/mujoco210/"
SAVED_STATES = 50
"""Per task, evenly spaced over all episodes."""


def main(wheel: Path, assets: Path, target: Path | None = None) -> None:
    """Print one line per task."""
    print(markdown_row(["task", "states", "2.1.0 and current"]), markdown_row(["---"] * 3), sep="\n")
    saved: dict[str, Any] = {}
    with TemporaryDirectory() as directory:
        program = _build(wheel, Path(directory))
        for task, file in TASKS.items():
            environment: Any = gymnasium.make(task).unwrapped
            rows = random_states(environment)
            current = np.array([next_state(environment, row) for row in rows])
            old = _next_states(program, assets / file, environment.frame_skip, rows)
            print(markdown_row([task, str(len(rows)), difference(current, old)]))
            if task.startswith("mujoco2:"):
                some = np.linspace(0, len(rows) - 1, SAVED_STATES).astype(int)
                saved |= {f"{task}.before": rows[some], f"{task}.after": old[some]}
    if target:
        np.savez_compressed(target, **saved)


def _build(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory, [name for name in archive.namelist() if name.startswith(LIBRARY)])
    binaries, program = directory / LIBRARY / "bin", directory / "step"
    source = Path(__file__).with_suffix(".c")
    flags = [f"-I{directory / LIBRARY / 'include'}", f"-L{binaries}", f"-Wl,-rpath,{binaries}"]
    subprocess.run(["cc", source, "-o", program, *flags, "-lmujoco210nogl", "-lm"], check=True)
    return program


def _next_states(program: Path, model: Path, frames: int, rows: Array) -> Array:
    """Positions and velocities after an environment step in MuJoCo 2.1.0."""
    done = subprocess.run([program, model, str(frames)], input=rows.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout).reshape(len(rows), -1)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    main(*map(Path, sys.argv[1:]))
