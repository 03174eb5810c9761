"""Profile one training step on the CPU and count what a reader has to open: `make trace`.

The step is SAC on HalfCheetah-v5 with predictive selection: environment step, store, draw, update, feedback. Counted
are the files of the package that it enters, their lines, the functions called, and how often a call is in another file
than the call before it.
"""

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

from aes_rl.agents import SAC
from aes_rl.training import RunState, Training, train

SOURCE = Path(__file__).parents[1] / "src" / "aes_rl"
GOAL = "20 files, 2,300 lines, 110 changes"
"""What was reached is held by tests/test_reading.py."""


def main() -> None:
    """Print the trace and the counts."""
    files, functions, changes = step_through()
    for name in files:
        print(f"{lines_of(name):5}  {name}")
    lines = sum(map(lines_of, files))
    print(f"{len(files)} files, {lines} lines, {len(functions)} functions, {changes} changes of file")
    print(f"goal: {GOAL}")


def step_through() -> tuple[list[str], set[str], int]:
    """Files in the order in which they are entered first, functions, and changes of file of one step."""
    sac = SAC(hidden=(16, 16), batch_size=16, warm_up_steps=20)
    config = Training(
        task="HalfCheetah-v5", samplers=("predictive",), seeds=(0,), env_steps=100, capacity=100, workers=0, sac=sac
    )
    state = RunState(config)
    loop = train(state)
    for _ in range(30):
        next(loop)
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SOURCE)):
            calls.append((os.path.relpath(name, SOURCE), frame.f_code.co_qualname))

    _profiled(lambda: next(loop), note)
    state.close()
    names = [name for name, _ in calls]
    changes = sum(before != after for before, after in pairwise(names))
    return list(dict.fromkeys(names)), {f"{name}:{function}" for name, function in calls}, changes


def lines_of(name: str) -> int:
    """Lines of a file of the package."""
    return len((SOURCE / name).read_text().splitlines())


def _profiled(work: Callable[[], object], note: Callable[[FrameType, str, object], None]) -> None:
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
