"""Some members' environments, stepped in one process."""

from collections.abc import Sequence
from typing import Any

from aes_rl.training import simulator
from aes_rl.training.board import Board
from aes_rl.training.simulator import Saved


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
        for member, environment, seed in zip(self._members, self._environments, seeds, strict=True):
            self._board.observation[member], _ = environment.reset(seed=seed)

    def step(self) -> None:
        """Step every environment with its member's action, and reset those whose episode ended."""
        board = self._board
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            action = self._middle + self._half * board.action[member]
            observation, reward, terminated, truncated, _ = environment.step(action)
            self._returns[position] += float(reward)
            board.next_observation[member] = observation
            board.reward[member] = reward
            board.terminated[member] = terminated
            ended = bool(terminated or truncated)
            board.ended[member] = ended
            if ended:
                board.episode_return[member] = self._returns[position]
                self._returns[position] = 0.0
                observation, _ = environment.reset()
            board.observation[member] = observation

    def save(self) -> list[tuple[int, Saved | None, float]]:
        """Each member's environment, with the return so far of its episode."""
        saved = [simulator.save(environment) for environment in self._environments]
        return list(zip(self._members, saved, self._returns, strict=True))

    def restore(self, saved: dict[int, tuple[Saved | None, float]]) -> None:
        """Continue; an environment that could not be saved starts a new episode."""
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            state, self._returns[position] = saved[member]
            if state is None:
                self._board.observation[member], _ = environment.reset()
                self._returns[position] = 0.0
            else:
                simulator.restore(environment, state)

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()
