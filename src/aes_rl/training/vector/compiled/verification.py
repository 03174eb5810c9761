"""Whether a compiled loop does what Gymnasium does, tried out before it is used."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from aes_rl.training.vector import simulator
from aes_rl.training.vector.compiled.loops import MOST_SUMMED
from aes_rl.training.vector.compiled.stepper import CompiledStepper
from aes_rl.training.vector.compiled.tasks import Task, task_of
from aes_rl.training.vector.simulator import Environment
from aes_rl.training.vector.step_data import Sizes, StepData, step_data_size

_STEPS = 60
_SHAKE_EVERY = 4
"""Steps between two changes of the state, which reach what random actions do not, such as the end of Ant's episodes."""


def compiled_stepper(
    task: str, environments: Sequence[Environment], data: StepData[NDArray[np.float32]], rows: Sequence[int]
) -> CompiledStepper | None:
    """Compiled steps of a task's environments; None where they would not be exactly Gymnasium's."""
    own = _compiled_task(environments[0])
    return CompiledStepper(own, environments, data, rows) if own is not None and is_exact(task) else None


@cache
def is_exact(task: str) -> bool:
    """Whether two new environments of a task, one stepped by Gymnasium, agree in every bit over some steps."""
    reference, other = simulator.make(task), simulator.make(task)
    try:
        own = _compiled_task(other)
        return own is not None and _agree(reference, other, own)
    except Exception:  # Gymnasium's own step failed; it comes first, because a failing loop would end the process
        return False
    finally:
        reference.close()
        other.close()


def _compiled_task(environment: Environment) -> Task | None:
    simulated: Any = simulator.mujoco_environment_of(environment)
    if simulated is None:
        return None
    sizes = simulated.model.nu, 6 * simulated.model.nbody
    middle, half_width = simulator.action_scale(environment)
    if max(sizes) > MOST_SUMMED or middle.dtype != np.float32 or half_width.dtype != np.float32:
        return None
    return task_of(simulated) if _time_limits(environment) <= 1 else None


def _time_limits(environment: Any) -> int:
    """How many wrappers count the steps of an episode."""
    count = 0
    while environment is not environment.unwrapped:
        count += isinstance(environment, TimeLimit)
        environment = environment.env
    return count


def _agree(reference: Environment, other: Environment, task: Task) -> bool:
    generator = np.random.default_rng(0)
    middle, half_width = simulator.action_scale(reference)
    first, space = reference.reset(seed=0)[0], reference.observation_space
    if first.shape != space.shape:
        return False  # the loops would write beyond the observation
    sizes = Sizes(len(first), len(middle))
    other.reset(seed=0)
    data = StepData(np.zeros(step_data_size(1, sizes), np.float32), 1, sizes)
    stepper = CompiledStepper(task, [other], data, [0])
    for step in range(_STEPS):
        if step % _SHAKE_EVERY == _SHAKE_EVERY - 1:
            _shake(reference, other, generator)
        data.action[0] = generator.uniform(-1, 1, sizes.action)
        observation, reward, terminated, truncated, _ = reference.step(middle + half_width * data.action[0])
        stepper.returns[:] = 0
        stepper.step()
        expected = [*observation, reward, terminated, terminated or truncated]
        if _bits([*stepper.observation[0], stepper.returns[0], data.terminated[0], data.ended[0]]) != _bits(expected):
            return False
        if terminated or truncated:
            reference.reset()
            other.reset()
            stepper.take_over(0)
    stepper.hand_back(0)
    return _state(reference) == _state(other)


def _bits(numbers: Sequence[Any]) -> bytes:
    return np.array(numbers, np.float64).tobytes()


def _shake(reference: Any, other: Any, generator: np.random.Generator) -> None:
    """Put both simulators into the same unusual state."""
    data = reference.unwrapped.data
    positions = data.qpos + generator.normal(size=data.qpos.shape) * generator.choice([0.01, 0.1, 1.0])
    velocities = data.qvel + generator.normal(size=data.qvel.shape) * generator.choice([0.1, 1.0, 10.0])
    for environment in (reference, other):
        environment.unwrapped.set_state(positions, velocities)


def _state(environment: Environment) -> bytes:
    saved = simulator.save(environment)
    assert saved is not None
    return b"".join(array.tobytes() for array in saved.arrays.values())
