"""The environments of some members, stepped in one process, and the checks of what they return."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aes_rl.errors import RunError
from aes_rl.training.vector import simulator
from aes_rl.training.vector.simulator import Saved
from aes_rl.training.vector.step_data import StepData

_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class Resumption(NamedTuple):
    """Where one member's environment continues."""

    state: Saved | None
    """None if it could not be saved: a new episode starts."""
    observation: NDArray[np.float32]
    """The agent's last observation."""
    episode_return: float
    """Return so far of the episode."""
    seed: int
    """Seed of the new episode, if one starts."""


class Group:
    """The environments of some members in this process; they read and write their members' rows of the step data."""

    def __init__(self, task: str, members: Sequence[int], seeds: Sequence[int], data: StepData[NDArray[np.float32]]):
        self._members = list(members)
        self._data = data
        self._environments = [simulator.make(task) for _ in self._members]
        self._returns: list[float] = []
        self._middle, self._half = simulator.action_scale(self._environments[0])
        self.reset(seeds)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment, with its seed."""
        self._returns = [0.0] * len(self._members)
        for position, seed in enumerate(seeds):
            self._begin_episode(position, seed)

    def step(self) -> None:
        """Step every environment with its member's action, and reset those whose episode ended."""
        data = self._data
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            action = self._middle + self._half * data.action[member]
            try:
                observation, reward, terminated, truncated, _ = environment.step(action)
            except SystemExit as error:
                raise RunError(f"the environment of member {member} ended its process in step ({error!r})") from error
            reward = as_number("the reward", reward, member)
            self._returns[position] += reward
            data.next_observation[member] = as_observation(observation, data.next_observation.shape[1], member)
            data.reward[member] = reward
            data.terminated[member] = as_number("terminated", terminated, member)
            ended = bool(terminated or as_number("truncated", truncated, member))
            data.ended[member] = ended
            if ended:
                data.episode_return[member] = self._returns[position]
                self._returns[position] = 0.0
                self._begin_episode(position, None)
            else:
                data.observation[member] = observation

    def save(self) -> list[tuple[int, Saved | None, float]]:
        """Each member with its environment's state and the return so far of its episode."""
        saved = [simulator.save(environment) for environment in self._environments]
        return list(zip(self._members, saved, self._returns, strict=True))

    def restore(self, resumptions: dict[int, Resumption]) -> None:
        """Continue; an environment that could not be saved starts a new episode."""
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            resumption = resumptions[member]
            if resumption.state is None:
                self._begin_episode(position, resumption.seed)
                self._returns[position] = 0.0
            else:
                simulator.restore(environment, resumption.state)
                self._data.observation[member] = resumption.observation
                self._returns[position] = resumption.episode_return

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()

    def _begin_episode(self, position: int, seed: int | None) -> None:
        member = self._members[position]
        try:
            observation, _ = self._environments[position].reset(seed=seed)
        except SystemExit as error:
            raise RunError(f"the environment of member {member} ended its process in reset ({error!r})") from error
        self._data.observation[member] = as_observation(observation, self._data.observation.shape[1], member)


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
