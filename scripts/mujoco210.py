"""Whether the tasks in mujoco2.py step as MuJoCo 2.1.0 itself did, the oldest that can be had without a licence.

pip download --no-deps --ignore-requires-python free-mujoco-py==2.1.6     its library, on Linux
python scripts/mujoco210.py WHEEL ASSETS                  how far apart the next states are, as Markdown
python scripts/mujoco210.py WHEEL ASSETS TARGET.npz       and keeps some states and what 2.1.0 made of them, for a test

ASSETS is a folder of model files: gym/envs/mujoco/assets of Gym 0.17.3, with which published curves were made. A C
compiler is needed.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from dynamics import Array, apart, played, stepped

from aes_rl.report.tables import markdown_row

TASKS = {
    "Hopper-v4": "hopper.xml",
    "mujoco2:Hopper-v3": "hopper.xml",
    "Walker2d-v4": "walker2d.xml",
    "mujoco2:Walker2d-v3": "walker2d.xml",
    "HalfCheetah-v4": "half_cheetah.xml",
    "Reacher-v4": "reacher.xml",
}
"""With their model files."""
FOLDER = "mujoco_py/binaries/linux/mujoco210/"
KEPT = 50
"""States for the test, from all episodes of a task."""


def main(wheel: Path, assets: Path, target: Path | None = None) -> None:
    """A line for each task."""
    print(markdown_row(["task", "states", "2.1.0 and today"]), markdown_row(["---"] * 3), sep="\n")
    kept: dict[str, Any] = {}
    with TemporaryDirectory() as directory:
        program = _built(wheel, Path(directory))
        for task, file in TASKS.items():
            environment: Any = gymnasium.make(task).unwrapped
            rows = played(environment)
            now = np.array([stepped(environment, row) for row in rows])
            then = _stepped_then(program, assets / file, environment.frame_skip, rows)
            print(markdown_row([task, str(len(rows)), apart(now, then)]))
            if task.startswith("mujoco2:"):
                some = np.linspace(0, len(rows) - 1, KEPT).astype(int)
                kept |= {f"{task}.before": rows[some], f"{task}.after": then[some]}
    if target:
        np.savez_compressed(target, **kept)


def _built(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory, [name for name in archive.namelist() if name.startswith(FOLDER)])
    library, program = directory / FOLDER / "bin", directory / "step"
    source = Path(__file__).with_suffix(".c")
    found = [f"-I{directory / FOLDER / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", source, "-o", program, *found, "-lmujoco210nogl", "-lm"], check=True)
    return program


def _stepped_then(program: Path, model: Path, frames: int, rows: Array) -> Array:
    """Positions and velocities after an environment step in MuJoCo 2.1.0."""
    done = subprocess.run([program, model, str(frames)], input=rows.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout).reshape(len(rows), -1)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    main(*map(Path, sys.argv[1:]))
