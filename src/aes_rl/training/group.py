"""Some members' environments, stepped in one process, and what they must give."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aes_rl.errors import RunError
from aes_rl.training import simulator
from aes_rl.training.board import Board
from aes_rl.training.simulator import Array, Saved

_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class Resumption(NamedTuple):
    """Where one member's environment goes on."""

    state: Saved | None
    """None if it could not be saved: a new episode starts."""
    observation: Array
    """What the agent saw last."""
    episode_return: float
    """Of the episode so far."""
    seed: int
    """Of the new episode, where one starts."""


class Group:
    """Some members' environments in this process, reading and writing their rows of a board."""

    def __init__(self, task: str, members: Sequence[int], seeds: Sequence[int], board: Board):
        self._members = list(members)
        self._board = board
        self._environments = [simulator.make(task) for _ in self._members]
        self._returns: list[float] = []
        space: Any = self._environments[0].action_space
        self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2
        self.reset(seeds)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode of every environment, with its seed."""
        self._returns = [0.0] * len(self._members)
        for position, seed in enumerate(seeds):
            self._begin(position, seed)

    def step(self) -> None:
        """Step every environment with its member's action, and reset those whose episode ended."""
        board = self._board
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            action = self._middle + self._half * board.action[member]
            try:
                observation, reward, terminated, truncated, _ = environment.step(action)
            except SystemExit as error:
                raise RunError(f"the environment of member {member} ended its process in step ({error!r})") from error
            reward = number("the reward", reward, member)
            self._returns[position] += reward
            board.next_observation[member] = vector(observation, board.next_observation.shape[1], member)
            board.reward[member] = reward
            board.terminated[member] = number("terminated", terminated, member)
            ended = bool(terminated or number("truncated", truncated, member))
            board.ended[member] = ended
            if ended:
                board.episode_return[member] = self._returns[position]
                self._returns[position] = 0.0
                self._begin(position, None)
            else:
                board.observation[member] = observation

    def save(self) -> list[tuple[int, Saved | None, float]]:
        """Each member's environment, with the return so far of its episode."""
        saved = [simulator.save(environment) for environment in self._environments]
        return list(zip(self._members, saved, self._returns, strict=True))

    def restore(self, resumptions: dict[int, Resumption]) -> None:
        """Continue; an environment that could not be saved starts a new episode."""
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            resumption = resumptions[member]
            if resumption.state is None:
                self._begin(position, resumption.seed)
                self._returns[position] = 0.0
            else:
                simulator.restore(environment, resumption.state)
                self._board.observation[member] = resumption.observation
                self._returns[position] = resumption.episode_return

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()

    def _begin(self, position: int, seed: int | None) -> None:
        """Start a new episode."""
        member = self._members[position]
        try:
            observation, _ = self._environments[position].reset(seed=seed)
        except SystemExit as error:
            raise RunError(f"the environment of member {member} ended its process in reset ({error!r})") from error
        self._board.observation[member] = vector(observation, self._board.observation.shape[1], member)


def vector(observation: object, size: int, member: int) -> Array:
    """An observation; raises unless it is a vector of so many numbers. Whether they are finite is seen later."""
    array = observation if isinstance(observation, np.ndarray) else np.asarray(observation)
    if array.shape != (size,) or array.dtype.kind not in "fiub":
        raise RunError(
            f"the observation of member {member} is {array.dtype} {array.shape}; its space says numbers {(size,)}"
        )
    return array


def number(what: str, value: Any, member: int) -> float:
    """A reward or a verdict as a number; raises on anything else."""
    if isinstance(value, _NUMBERS):
        return float(value)
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "fiub":
        return float(value.item())
    raise RunError(f"{what} of member {member} is {value!r}; it must be a number")
