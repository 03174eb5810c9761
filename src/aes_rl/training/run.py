"""A run: the parts that one configuration puts together, and the two clocks they share."""

import torch
from torch import Tensor

from aes_rl.agents import make_agent
from aes_rl.replay import Replay
from aes_rl.streams import Stream
from aes_rl.training.config import Training
from aes_rl.training.environments import Environments, sizes_of
from aes_rl.types import as_tensor

_MOST_SEEDS = 2**31


class Run:
    """Environments, replay and agent of every member, at some step."""

    def __init__(self, config: Training):
        self.config = config
        seeds = [seed for _, seed in config.members]
        self.sizes = sizes_of(config.task)
        self.replay = Replay(
            config.sampler_configs,
            capacity=config.capacity,
            observation_size=self.sizes.observation,
            action_size=self.sizes.action,
            seeds=seeds,
            total_updates=config.total_updates,
            device=config.device,
        )
        self.streams = self.replay.streams
        self.agent = make_agent(config.agent_config, self.sizes.observation, self.sizes.action, self.streams)
        workers = config.workers
        if workers is None:
            workers = 0 if len(seeds) <= 2 else min(len(seeds), 14)
        episode_seeds = self.streams.integers(Stream.EPISODE, self.streams.counter(0), 1, _MOST_SEEDS)
        self.environments = Environments(config.task, episode_seeds.flatten().tolist(), workers)
        self.env_step = 0
        """Environment steps every member has taken."""
        self.update_step = 0
        """Updates made so far."""

    def observation(self) -> Tensor:
        """What every member sees now."""
        return torch.from_numpy(self.environments.board.observation.copy()).to(self.config.device)

    def act(self) -> Tensor:
        """Every member's next action: uniform while warming up, exploring afterwards."""
        counter, count = self.streams.counter(self.env_step), self.sizes.action
        if self.env_step < self.config.agent_config.warm_up_steps:
            return (2 * as_tensor(self.streams.uniform(Stream.WARM_UP, counter, count)) - 1).float()
        return self.agent.act(self.observation(), self.streams.normal(Stream.EXPLORE, counter, count))

    def evaluation_seeds(self, evaluation: int, episodes: int) -> list[list[int]]:
        """Seeds of the test episodes of every member, the same whenever that evaluation is made."""
        seeds = self.streams.integers(Stream.EVALUATION, self.streams.counter(evaluation), episodes, _MOST_SEEDS)
        rows: list[list[int]] = seeds.tolist()
        return rows

    def close(self) -> None:
        """End the environments."""
        self.environments.close()
