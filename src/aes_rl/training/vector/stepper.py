"""How the environments of one process step: one by one with Gymnasium, or by a compiled loop that gives the same."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl.errors import RunError
from aes_rl.training.vector import simulator
from aes_rl.training.vector.simulator import Environment
from aes_rl.training.vector.step_data import StepData

_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class AbstractStepper(ABC):
    """Steps environments with the actions of their rows of the step data, and writes what they return there."""

    returns: NDArray[np.float64]
    """Return so far of every environment's episode."""
    members: Sequence[int]
    """Every environment's member; error messages name it."""

    @abstractmethod
    def step(self) -> bool:
        """Step the selected environments; whether an episode has ended.

        `data.observation` and `data.episode_return` of an environment whose episode ended are left to the caller.
        """

    @abstractmethod
    def select(self, positions: Sequence[int]) -> None:
        """Let only the environments at these positions step from now on."""

    def take_over(self, position: int) -> None:  # noqa: B027
        """An environment has been reset or restored."""

    def hand_back(self, position: int) -> None:  # noqa: B027
        """An environment is to be saved."""


class GymnasiumStepper(AbstractStepper):
    """Steps environments one by one with Gymnasium."""

    def __init__(
        self,
        environments: Sequence[Environment],
        data: StepData[NDArray[np.float32]],
        rows: Sequence[int],
    ):
        """With the row of the step data of every environment."""
        self._environments, self._data, self._rows = environments, data, rows
        self._selected: Sequence[int] = range(len(environments))
        self.members = rows
        self._middle, self._half_width = simulator.action_scale(environments[0])
        self.returns = np.zeros(len(environments))

    @override
    def step(self) -> bool:
        data, has_ended = self._data, False
        for position in self._selected:
            environment, row, member = self._environments[position], self._rows[position], self.members[position]
            action = self._middle + self._half_width * data.action[row]
            try:
                observation, reward, terminated, truncated, _ = environment.step(action)
            except SystemExit as error:
                raise RunError(f"the environment of member {member} ended its process in step ({error!r})") from error
            reward = as_number("the reward", reward, member)
            self.returns[position] += reward
            data.next_observation[row] = as_observation(observation, data.next_observation.shape[1], member)
            data.reward[row] = reward
            data.terminated[row] = as_number("terminated", terminated, member)
            ended = bool(as_number("truncated", truncated, member) or terminated)
            data.ended[row] = ended
            has_ended |= ended
            if not ended:
                data.observation[row] = observation
        return has_ended

    @override
    def select(self, positions: Sequence[int]) -> None:
        self._selected = positions


def make_stepper(
    task: str,
    environments: Sequence[Environment],
    data: StepData[NDArray[np.float32]],
    rows: Sequence[int],
) -> AbstractStepper:
    """The fastest stepper for a task's environments, each with its row of the step data."""
    if simulator.mujoco_environment_of(environments[0]) is not None:
        with suppress(ImportError):  # no Numba, or a MuJoCo whose C library cannot be called
            from aes_rl.training.vector.compiled.verification import compiled_stepper

            compiled = compiled_stepper(task, environments, data, rows)
            if compiled is not None:
                return compiled
    return GymnasiumStepper(environments, data, rows)


def as_observation(observation: object, size: int, member: int) -> NDArray[np.generic]:
    """An observation as an array; raises unless it is a vector of `size` numbers. The caller checks for finiteness."""
    array = observation if isinstance(observation, np.ndarray) else np.asarray(observation)
    if array.shape != (size,) or array.dtype.kind not in "fiub":
        raise RunError(
            f"the observation of member {member} is {array.dtype} {array.shape}; its space says numbers {(size,)}"
        )
    return array


def as_number(name: str, value: object, member: int) -> float:
    """A reward, `terminated` or `truncated` as a number; raises on anything else."""
    if isinstance(value, _NUMBERS):
        return float(value)
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "fiub":
        return float(value.item())
    raise RunError(f"{name} of member {member} is {value!r}; it must be a number")
