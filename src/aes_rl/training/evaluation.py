"""Deterministic test episodes on environments of their own."""

from typing import Any, NamedTuple

import numpy as np
import torch

from aes_rl.agents import AbstractAgent
from aes_rl.training.environments import Environments

Array = np.ndarray[Any, Any]


class Score(NamedTuple):
    """Test episodes of every member."""

    returns: Array
    """[P, episodes]."""
    lengths: Array
    """[P, episodes]."""


class Evaluator:
    """Test environments that are made once and played again at every evaluation."""

    def __init__(self, task: str, members: int, episodes: int, workers: int):
        """`episodes` of every member side by side, stepped by `workers` processes, or here if there are none."""
        self._shape = (members, episodes)
        self._environments = Environments(task, [0] * (members * episodes), workers)

    def play(self, agent: AbstractAgent, seeds: list[list[int]], device: torch.device) -> Score:
        """The returns of the greedy policy in episodes with given seeds, [P][episodes].

        A seed fixes its episode, so a score depends on the parameters and the seeds alone.
        """
        environments, board = self._environments, self._environments.board
        environments.reset([seed for own in seeds for seed in own])
        returns, lengths = np.zeros(self._shape), np.zeros(self._shape, np.int64)
        idle = board.is_idle.reshape(self._shape)
        while not idle.all():
            observation = torch.tensor(board.observation.reshape(*self._shape, -1), device=device)
            action = agent.act_greedily(observation).cpu().numpy()
            environments.send(action.reshape(board.action.shape))
            environments.receive()
            running = idle == 0
            returns += running * board.reward.reshape(self._shape)
            lengths += running
            idle[board.ended.reshape(self._shape) > 0] = 1
        return Score(returns, lengths)

    def close(self) -> None:
        """End the environments."""
        self._environments.close()
