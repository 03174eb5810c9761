"""CPU time of environment steps against Gymnasium and bare MuJoCo, and of a step of all: `make bench-environments`.

Three contestants make the same steps with the same actions in turns, in blocks: a group of environments as in training,
the same group stepped by Gymnasium, and `mujoco.mj_step` alone. Time is the thread's CPU time per member and step,
medians over blocks, without resets, which are Gymnasium's in all three.
"""

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing import Pipe
from pathlib import Path
from unittest.mock import patch

import mujoco
import numpy as np
from replay import processor

from aes_rl.training import PAPER_TASKS
from aes_rl.training.vector import simulator
from aes_rl.training.vector.environments import Environments
from aes_rl.training.vector.group import Group
from aes_rl.training.vector.processes import StepCounters
from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size
from aes_rl.training.vector.stepper import GymnasiumStepper
from aes_rl.training.vector.waiting import TurnEvent

RESULT = Path(__file__).parent / "results" / "environments.json"
MEMBERS = 5
"""As many as one of the twelve processes steps that 60 members get on 16 cores."""
WORKERS = 12
BLOCK = 20
BARE, OURS, GYMNASIUM = "mj_step", "ours", "gymnasium"
clock = time.thread_time_ns


class Timed:
    """A group of environments, and the time of its steps and of its resets."""

    def __init__(self, task: str, is_compiled: bool):
        sizes = sizes_of(task)
        self.data = StepData(np.zeros(step_data_size(MEMBERS, sizes), np.float32), MEMBERS, sizes)
        stepper = "aes_rl.training.vector.group.make_stepper"
        if is_compiled:
            self.group = Group(task, range(MEMBERS), range(MEMBERS), self.data)
        else:
            with patch(stepper, lambda _, *arguments: GymnasiumStepper(*arguments)):
                self.group = Group(task, range(MEMBERS), range(MEMBERS), self.data)
        self.reset_ns = 0
        for environment in self.group._environments:
            environment.reset = self._timed(environment.reset)

    def _timed(self, reset: Callable) -> Callable:
        def timed(**options):
            start = clock()
            result = reset(**options)
            self.reset_ns += clock() - start
            return result

        return timed

    def block(self, actions: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Time of some steps, of the resets among them, and where episodes ended."""
        self.reset_ns, total, ended = 0, 0, []
        for action in actions:
            self.data.action[...] = action
            start = clock()
            self.group.step()
            total += clock() - start
            ended.append(self.data.ended != 0)
        return total - self.reset_ns, self.reset_ns, np.array(ended)


class Bare:
    """Gymnasium's simulators, stepped by MuJoCo alone."""

    def __init__(self, task: str):
        self.environments = [simulator.make(task) for _ in range(MEMBERS)]
        for seed, environment in enumerate(self.environments):
            environment.reset(seed=seed)
        self.middle, self.half_width = simulator.action_scale(self.environments[0])
        self.frames = self.environments[0].unwrapped.frame_skip
        self.pairs = [(own.unwrapped.model, own.unwrapped.data) for own in self.environments]

    def block(self, actions: np.ndarray, ended: np.ndarray) -> float:
        """Time of some steps; episodes end where they are said to."""
        total, frames = 0, self.frames
        for action, ends in zip(actions, ended, strict=True):
            for (_, data), own in zip(self.pairs, action, strict=True):
                data.ctrl[:] = self.middle + self.half_width * own
            start = clock()
            for model, data in self.pairs:
                mujoco.mj_step(model, data, nstep=frames)
            total += clock() - start
            for member in np.flatnonzero(ends):
                self.environments[member].reset()
        return total


def measure(task: str, blocks: int) -> dict[str, float]:
    """µs per member and step."""
    ours, gymnasium, bare = Timed(task, True), Timed(task, False), Bare(task)
    generator = np.random.default_rng(0)
    times: dict[str, list[float]] = {BARE: [], OURS: [], GYMNASIUM: [], "resets": []}
    for number in range(-2, blocks):
        actions = generator.uniform(-1, 1, (BLOCK, *ours.data.action.shape)).astype(np.float32)
        own, resets, ended = ours.block(actions)
        found = {OURS: own, "resets": resets, BARE: bare.block(actions, ended)}
        found[GYMNASIUM] = gymnasium.block(actions)[0]
        if number >= 0:
            for name, value in found.items():
                times[name].append(value / BLOCK / MEMBERS / 1e3)
    assert np.array_equal(ours.data.memory, gymnasium.data.memory)
    assert all(
        np.array_equal(one.unwrapped.data.qpos, other[1].qpos)
        for one, other in zip(ours.group._environments, bare.pairs, strict=True)
    )
    figures = {name: statistics.median(values) for name, values in times.items() if name != "resets"}
    figures["resets"] = statistics.fmean(times["resets"])
    figures["(ours - 1 µs) / mj_step"] = statistics.median(
        (own - 1) / other for own, other in zip(times[OURS], times[BARE], strict=True)
    )
    figures["gymnasium / ours"] = statistics.median(
        other / own for own, other in zip(times[OURS], times[GYMNASIUM], strict=True)
    )
    return figures


def unevenness(task: str, steps: int) -> dict[str, float]:
    """µs of a group's step with resets: its mean, and the mean of the largest of as many as there are workers."""
    ours = Timed(task, True)
    generator = np.random.default_rng(1)
    times = []
    for _ in range(steps):
        ours.data.action[...] = generator.uniform(-1, 1, ours.data.action.shape)
        start = clock()
        ours.group.step()
        times.append((clock() - start) / 1e3)
    groups = generator.choice(times, (4000, WORKERS))
    return {"mean of a group": statistics.fmean(times), f"largest of {WORKERS} groups": float(groups.max(1).mean())}


def waiting_costs(rounds: int) -> dict[str, float]:
    """µs of a step of all in which the environments cost next to nothing."""
    found = {f"the learner's part, {WORKERS} workers that are ready": _learners_part(rounds)}
    environments = Environments("InvertedPendulum-v5", [0, 1], 1)
    group = Timed("InvertedPendulum-v5", True)
    values = []
    for _ in range(rounds):
        start = time.perf_counter()
        environments.send(np.zeros((2, 1), np.float32))
        environments.receive()
        values.append((time.perf_counter() - start) * 1e6)
    environments.close()
    alone = []
    for _ in range(rounds):
        start = time.perf_counter()
        group.group.step()
        alone.append((time.perf_counter() - start) * 1e6 * 2 / MEMBERS)
    found["one worker, both ends spinning, beyond the steps"] = statistics.median(values) - statistics.median(alone)
    return found


def _learners_part(rounds: int) -> float:
    """Raising the counter, looking whether workers sleep, and finding that they have stepped."""
    counters = StepCounters(np.zeros(StepCounters.size(WORKERS), np.int64))
    events = []
    for number in range(WORKERS):
        own, other = counters.asleep_flags(number)
        events.append(TurnEvent(Pipe()[0], Pipe()[0], other, own))
    counters.completed[:] = rounds + 1
    values = []
    for _ in range(rounds):
        start = time.perf_counter()
        counters.requested += 1
        for event in events:
            event.notify()
        for number, event in enumerate(events):
            event.wait(lambda number=number: counters.completed[number] >= counters.requested[0])
        values.append((time.perf_counter() - start) * 1e6)
    return statistics.median(values)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(PAPER_TASKS))
    parser.add_argument("--blocks", type=int, default=40, help=f"turns of every contestant, of {BLOCK} steps")
    parser.add_argument("--update", action="store_true", help=f"write the figures to {RESULT.name}")
    arguments = parser.parse_args()
    steps = {task: measure(task, arguments.blocks) for task in arguments.tasks}
    for task, figures in steps.items():
        print(f"{task:26}", *(f"{name} {value:.3g}" for name, value in figures.items()), sep="  ")
    uneven = {task: unevenness(task, 10 * arguments.blocks) for task in arguments.tasks}
    for task, figures in uneven.items():
        print(f"{task:26}", *(f"{name} {value:.0f}" for name, value in figures.items()), sep="  ")
    waiting = waiting_costs(2000)
    for name, value in waiting.items():
        print(f"{name}: {value:.1f} µs")
    result = {
        "cpu_us_per_member_and_step": steps,
        "us_per_step_of_all": uneven,
        "waiting_us_per_step_of_all": waiting,
        "members_per_group": MEMBERS,
        "blocks": arguments.blocks,
        "machine": f"{platform.machine()}, {processor()}",
        "versions": {name: version(name) for name in ("aes-rl", "gymnasium", "mujoco", "numba", "numpy")},
    }
    if arguments.update:
        RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
