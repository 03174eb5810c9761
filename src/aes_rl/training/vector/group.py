"""The environments of some members, stepped in one process."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aes_rl.errors import RunError
from aes_rl.training.vector import simulator
from aes_rl.training.vector.simulator import Saved
from aes_rl.training.vector.step_data import StepData
from aes_rl.training.vector.stepper import as_observation, make_stepper


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
        self._stepper = make_stepper(task, self._environments, data, self._members)
        self.reset(seeds)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment, with its seed."""
        for position, seed in enumerate(seeds):
            self._begin_episode(position, seed)

    def step(self) -> None:
        """Step every environment with its member's action, and reset those whose episode ended."""
        if not self._stepper.step():
            return
        for position, member in enumerate(self._members):
            if self._data.ended[member]:
                self._data.episode_return[member] = self._stepper.returns[position]
                self._begin_episode(position, None)

    def save(self) -> list[tuple[int, Saved | None, float]]:
        """Each member with its environment's state and the return so far of its episode."""
        saved = []
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            self._stepper.hand_back(position)
            saved.append((member, simulator.save(environment), float(self._stepper.returns[position])))
        return saved

    def restore(self, resumptions: dict[int, Resumption]) -> None:
        """Continue; an environment that could not be saved starts a new episode."""
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            resumption = resumptions[member]
            if resumption.state is None:
                self._begin_episode(position, resumption.seed)
            else:
                simulator.restore(environment, resumption.state)
                self._data.observation[member] = resumption.observation
                self._stepper.returns[position] = resumption.episode_return
                self._stepper.take_over(position)

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
        self._stepper.returns[position] = 0
        self._stepper.take_over(position)
