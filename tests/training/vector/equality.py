"""Groups of environments against gymnasium.make, bit for bit: python -m tests.training.vector.equality."""

import sys
import time
import warnings
from typing import NamedTuple

import gymnasium
import numpy as np

from aes_rl.training import PAPER_TASKS
from aes_rl.training.vector import simulator
from aes_rl.training.vector.compiled.stepper import CompiledStepper
from aes_rl.training.vector.group import Group, Resumption
from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size

OLD_TASKS = tuple(task.replace("-v5", "-v4") for task in PAPER_TASKS)
_GENTLE_EVERY = 300
"""Every other so many steps the actions are small: episodes then last longer."""


class Outcome(NamedTuple):
    """What two versions of some environments did."""

    differences: list[str]
    steps: int
    terminated: int
    truncated: int


def play(task: str, seed: int, members: int, steps: int, restore_every: int) -> Outcome:
    """Step a group and Gymnasium's environments with the same actions; at times the group is saved and made anew."""
    seeds = [100 * seed + member for member in range(members)]
    references = [gymnasium.make(task, disable_env_checker=True) for _ in seeds]
    sizes = sizes_of(task)
    data = StepData(np.zeros(step_data_size(members, sizes), np.float32), members, sizes)
    group = Group(task, range(members), seeds, data)
    first = [reference.reset(seed=own)[0] for reference, own in zip(references, seeds, strict=True)]
    differences = [] if np.array_equal(data.observation, np.array(first, np.float32)) else ["first observation"]
    generator, returns = np.random.default_rng(seed), np.zeros(members)
    middle, half_width = simulator.action_scale(references[0])
    terminations = truncations = 0
    for step in range(steps):
        if step % restore_every == restore_every - 1:
            differences += _differences_of_states(group, references, step)
            group = _made_anew(group, task, data)
        size = 0.1 if step // _GENTLE_EVERY % 2 else 1.0
        data.action[...] = size * generator.uniform(-1, 1, data.action.shape)
        group.step()
        for member, reference in enumerate(references):
            observation, reward, terminated, truncated, _ = reference.step(middle + half_width * data.action[member])
            returns[member] += reward
            own = own_results(group, data, member)
            ended = terminated or truncated
            expected = {
                "observation": observation,
                "next_observation": observation.astype(np.float32),
                "reward": np.float32(reward),
                "terminated": np.float32(terminated),
                "ended": np.float32(ended),
                "return": 0.0 if ended else returns[member],
            }
            if ended:
                expected["episode_return"] = np.float32(returns[member])
                returns[member] = 0
                observation, _ = reference.reset()
                terminations, truncations = terminations + terminated, truncations + truncated
            expected["agent's observation"] = observation.astype(np.float32)
            differences += [
                f"{name} of member {member} in step {step}"
                for name, value in expected.items()
                if np.asarray(value).tobytes() != np.asarray(own[name]).tobytes()
            ]
    group.close()
    return Outcome(differences, members * steps, terminations, truncations)


def own_results(group: Group, data: StepData, member: int) -> dict[str, object]:
    """What a group has written for a member, and the observation in Gymnasium's precision."""
    stepper = group._stepper
    assert isinstance(stepper, CompiledStepper), "the compiled loop was not used"
    names = ("next_observation", "reward", "terminated", "ended", "episode_return")
    own = {name: getattr(data, name)[member] for name in names}
    exact = {"observation": stepper.observation[member], "return": stepper.returns[member]}
    return {**own, **exact, "agent's observation": data.observation[member]}


def _differences_of_states(group: Group, references: list[gymnasium.Env], step: int) -> list[str]:
    """Where a checkpoint would differ."""
    found = []
    for (member, own, _), reference in zip(group.save(), references, strict=True):
        expected = simulator.save(reference)
        is_equal = own.facts == expected.facts and all(
            own.arrays[name].tobytes() == array.tobytes() for name, array in expected.arrays.items()
        )
        found += [] if is_equal else [f"saved state of member {member} before step {step}"]
    return found


def _made_anew(group: Group, task: str, data: StepData) -> Group:
    saved, observations = group.save(), data.observation.copy()
    group.close()
    made = Group(task, range(len(saved)), range(len(saved)), data)
    made.restore({member: Resumption(state, observations[member], total, 0) for member, state, total in saved})
    return made


def main() -> None:
    """Three seeds of four members and 2,000 steps per task, restored every 97 steps; fails if anything differs."""
    warnings.simplefilter("ignore")
    has_failed = False
    for task in (*PAPER_TASKS, *OLD_TASKS):
        started = time.perf_counter()
        outcomes = [play(task, seed, members=4, steps=2000, restore_every=97) for seed in range(3)]
        differences = [difference for outcome in outcomes for difference in outcome.differences]
        has_failed |= bool(differences)
        steps, terminated, truncated = (sum(outcome[field] for outcome in outcomes) for field in (1, 2, 3))
        print(
            f"{task:26} {'DIFFERS' if differences else 'equal'}  {steps:,} steps, {terminated} terminations, "
            f"{truncated} truncations, {time.perf_counter() - started:.0f} s",
            *differences[:5],
            flush=True,
        )
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
