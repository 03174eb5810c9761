"""Deterministic test episodes on environments of their own."""

from typing import Any, NamedTuple

import numpy as np
import torch

from aes_rl.agents import AbstractAgent
from aes_rl.training import simulator

Array = np.ndarray[Any, Any]


class Score(NamedTuple):
    """Test episodes of every member."""

    returns: Array
    """[P, episodes]."""
    lengths: Array
    """[P, episodes]."""


def evaluate(agent: AbstractAgent, task: str, seeds: list[list[int]], device: str = "cpu") -> Score:
    """The returns of the greedy policy in episodes with given seeds, [P][episodes].

    All episodes run side by side. A seed fixes its episode, so a score depends on the parameters and the seeds alone.
    """
    members, episodes = len(seeds), len(seeds[0])
    environments = [[simulator.make(task) for _ in own] for own in seeds]
    space: Any = environments[0][0].action_space
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    size = environments[0][0].observation_space.shape
    observation = np.zeros((members, episodes, *(size or ())), np.float32)
    for member, own in enumerate(seeds):
        for episode, seed in enumerate(own):
            observation[member, episode], _ = environments[member][episode].reset(seed=seed)
    returns, lengths = np.zeros((members, episodes)), np.zeros((members, episodes), np.int64)
    running = np.ones((members, episodes), bool)
    while running.any():
        action = agent.act_greedily(torch.from_numpy(observation).to(device)).cpu().numpy()
        for member, episode in np.argwhere(running):
            after, reward, terminated, truncated, _ = environments[member][episode].step(
                middle + half * action[member, episode]
            )
            observation[member, episode] = after
            returns[member, episode] += float(reward)
            lengths[member, episode] += 1
            running[member, episode] = not (terminated or truncated)
    for own_environments in environments:
        for environment in own_environments:
            environment.close()
    return Score(returns, lengths)
