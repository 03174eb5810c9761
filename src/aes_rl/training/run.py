"""A run: the parts that one configuration puts together, and the two clocks they share."""

from typing import NamedTuple

import numpy as np
import torch

from aes_rl.agents import Update, make_agent
from aes_rl.backends import SideStream
from aes_rl.errors import RunError
from aes_rl.machine import cores
from aes_rl.replay import Replay, Sample
from aes_rl.streams import Stream
from aes_rl.training import memory
from aes_rl.training.board import Board, sizes_of
from aes_rl.training.config import Training
from aes_rl.training.environments import Environments
from aes_rl.training.group import Resumption
from aes_rl.training.numerics import Numerics

_MOST_SEEDS = 2**31


class Learned(NamedTuple):
    """One update of every member and what it trained on."""

    update: Update
    sample: Sample


class Run:
    """Environments, replay and agent of every member, at some step."""

    def __init__(self, config: Training):
        self.config = config
        seeds = [seed for _, seed in config.members]
        self.sizes = sizes_of(config.task)
        memory.require(config, self.sizes)
        self.numerics = Numerics(torch.device(config.device), config.tf32)
        """The settings of torch that the run's work is done under."""
        with self.numerics:
            self._make_parts(config, seeds)
        self.learned: Learned | None = None
        """The last update of this step, if one was made."""
        self.env_step = 0
        """Environment steps every member has taken."""
        self.update_step = 0
        """Updates made so far."""
        self.returns: list[list[float]] = [[] for _ in seeds]
        """Of every member's episodes that ended since the last row of metrics."""
        self.seconds = 0.0
        """Wall time spent so far, in all sessions together."""

    def _make_parts(self, config: Training, seeds: list[int]) -> None:
        self.replay = Replay(
            config.sampler_configs,
            capacity=config.capacity,
            observation_size=self.sizes.observation,
            action_size=self.sizes.action,
            seeds=seeds,
            total_updates=config.total_updates,
            device=config.device,
            remembers_feedback=config.measure_variance_every is not None,
        )
        self.streams = self.replay.streams
        self.agent = make_agent(config.agent_config, self.sizes.observation, self.sizes.action, self.streams)
        self.aside = SideStream(self.streams.device)
        """Where sampling and learning may work beside each other."""
        self.workers = config.workers if config.workers is not None else workers_for(len(seeds), config.task)
        """Processes that step the environments; 0 if this one does."""
        self.environments = Environments(config.task, self.episode_seeds(0), self.workers)
        self.seen = Board(torch.zeros(self.environments.board.memory.shape, device=self.device), len(seeds), self.sizes)
        """The environments' board as last received, on the learner's device."""
        self.observation = torch.tensor(self.environments.board.observation, device=self.device)
        """What every member sees now."""
        self.action = torch.zeros(len(seeds), self.sizes.action, device=self.device)
        """What every member does next, scaled to [−1, 1]."""
        # A GPU talks through pinned memory; on the CPU the board is copied to where it is read.
        self._is_on_gpu = self.device.type == "cuda"
        self._staging = torch.zeros(self.seen.memory.shape, pin_memory=True) if self._is_on_gpu else self.seen.memory
        self._outgoing = torch.zeros(self.action.shape, pin_memory=True) if self._is_on_gpu else self.action
        self._has_arrived = torch.cuda.Event() if self._is_on_gpu else None  # type: ignore[no-untyped-call]
        self._is_sending = False

    @property
    def device(self) -> torch.device:
        """Where replay, samplers and agent live."""
        return self.streams.device

    def begin_sending(self) -> None:
        """Give the actions to the environments, or have a GPU bring them over once it has them."""
        if self._has_arrived is None:
            self.environments.send(self.action.numpy())
            return
        self._outgoing.copy_(self.action, non_blocking=True)
        self._has_arrived.record()
        self._is_sending = True

    def finish_sending(self) -> None:
        """Give the environments the actions that a GPU has brought over, if that has not been done yet."""
        if self._has_arrived is not None and self._is_sending:
            self._is_sending = False
            self._has_arrived.synchronize()
            self.environments.send(self._outgoing.numpy())

    def receive(self) -> Board:
        """Wait for the environments and bring what they show to the learner, in one transfer; their board."""
        board = self.environments.receive()
        if not np.isfinite(board.memory).all():
            raise RunError(f"{board.fault()} at step {self.env_step + 1:,}; look at the environment")
        self._staging.copy_(torch.from_numpy(board.memory))
        if self._is_on_gpu:
            self.seen.memory.copy_(self._staging, non_blocking=True)
        return board

    def restore_environments(self, resumptions: dict[int, Resumption]) -> None:
        """Continue every member's environment, or start a new episode where its state could not be saved."""
        self.environments.restore(resumptions)
        self.observation.copy_(torch.from_numpy(self.environments.board.observation))
        is_new = [resumptions[member].state is None for member in range(len(resumptions))]
        self.agent.end_episode(torch.tensor(is_new, dtype=torch.float32, device=self.device))

    def episode_seeds(self, env_step: int) -> list[int]:
        """Seeds of episodes that start anew at some step, one for each member."""
        seeds = self.streams.integers(Stream.EPISODE, self.streams.counter(env_step), 1, _MOST_SEEDS)
        own: list[int] = seeds.flatten().tolist()
        return own

    def evaluation_seeds(self, evaluation: int, episodes: int) -> list[list[int]]:
        """Seeds of the test episodes of every member, the same whenever that evaluation is made."""
        seeds = self.streams.integers(Stream.EVALUATION, self.streams.counter(evaluation), episodes, _MOST_SEEDS)
        rows: list[list[int]] = seeds.tolist()
        return rows

    def close(self) -> None:
        """End the environments."""
        self.environments.close()


def workers_for(environments: int, task: str) -> int:
    """As few processes as step so many environments at once, two cores being left to the learner.

    Eight processes with two environments each are as fast as fourteen of which one has two, and leave six cores alone.
    A task that a module brings (`module:Task-v0`) gets a process even for one: what ends that process ends no run.
    """
    if environments <= 2:
        return 1 if ":" in task else 0
    most = max(2, cores() - 2)
    turns = -(-environments // most)
    return -(-environments // turns)
