"""The state of a run: the components that a configuration puts together, and its numbers of steps and updates."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aes_rl.agents import Update, make_agent
from aes_rl.backends import side_stream_of
from aes_rl.errors import RunError
from aes_rl.machine import cores
from aes_rl.replay import Replay, Sample
from aes_rl.streams import Stream
from aes_rl.training import memory
from aes_rl.training.config import Training
from aes_rl.training.numerics import Numerics
from aes_rl.training.vector.environments import Environments
from aes_rl.training.vector.group import Resumption
from aes_rl.training.vector.step_data import StepData, sizes_of

_SEED_COUNT = 2**31


class Learned(NamedTuple):
    """The result of `learn`: one update of every member, and the sample it was computed on."""

    update: Update
    sample: Sample


class RunState:
    """Environments, replay and agent of every member, and the progress of the run."""

    def __init__(self, config: Training):
        self.config = config
        seeds = [seed for _, seed in config.members]
        self.sizes = sizes_of(config.task)
        memory.require(config, self.sizes)
        self.warm_up_steps, self.batch_size = config.warm_up_steps, config.agent_config.batch_size
        self.numerics = Numerics(torch.device(config.device), config.tf32)
        """Torch settings that apply during the run."""
        with self.numerics:
            self._make_components(config, seeds)
        self.env_step = 0
        """Environment steps that every member has taken."""
        self.update_step = 0
        """Updates made so far."""
        self.returns: list[list[float]] = [[] for _ in seeds]
        """Per member, the returns of the episodes that ended since the last row of metrics."""
        self.update_metrics: list[dict[str, float]] = [{} for _ in seeds]
        """Per member, losses and extreme weights of the last update that went into a table or a checkpoint."""
        self.seconds = 0.0
        """Wall time spent so far, including the time before a resume."""

    def _make_components(self, config: Training, seeds: list[int]) -> None:
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
        sizes, backend = self.sizes, self.replay.sampler.backend
        self.agent = make_agent(config.agent_config, sizes.observation, sizes.action, self.streams, backend)
        self.noise_size = self.agent.noise_size(self.batch_size)
        """Noise samples per member per update."""
        self.side_stream = side_stream_of(self.streams.device)
        """Second CUDA stream, on which replay works while the agent computes."""
        self.acting_stream = side_stream_of(self.streams.device)
        """Third CUDA stream, on which actions are computed while the agent computes gradients."""
        self.workers = config.workers if config.workers is not None else workers_for(len(seeds), config.task)
        """Number of processes that step the environments; with 0, this process steps them."""
        self.environments = Environments(config.task, self.episode_seeds(0), self.workers)
        data = self.environments.data
        self.received = StepData(torch.zeros(data.memory.shape, device=self.device), len(seeds), self.sizes)
        """The step data last received from the environments, on the learner's device."""
        self.observation = torch.tensor(data.observation, device=self.device)
        """Every member's current observation."""
        self.action = torch.zeros(len(seeds), self.sizes.action, device=self.device)
        """Every member's next action, scaled to [−1, 1]."""
        # Transfers to and from a GPU go through pinned memory; the CPU needs no second copy.
        self._is_on_gpu = self.device.type == "cuda"
        self._incoming = (
            torch.zeros(self.received.memory.shape, pin_memory=True) if self._is_on_gpu else self.received.memory
        )
        self._outgoing = torch.zeros(self.action.shape, pin_memory=True) if self._is_on_gpu else self.action
        self._actions_copied = torch.cuda.Event() if self._is_on_gpu else None  # type: ignore[no-untyped-call]
        self._has_unsent_actions = False

    @property
    def device(self) -> torch.device:
        """Where replay, samplers and agent live."""
        return self.streams.device

    def begin_sending(self) -> None:
        """Send the actions to the environments. On a GPU, only start their copy to the host."""
        if self._actions_copied is None:
            self.environments.send(self.action.numpy())
            return
        self._outgoing.copy_(self.action, non_blocking=True)
        self._actions_copied.record()
        self._has_unsent_actions = True

    def finish_sending(self) -> None:
        """On a GPU, wait for the copy and send the actions; does nothing if they were sent."""
        if self._actions_copied is not None and self._has_unsent_actions:
            self._has_unsent_actions = False
            self._actions_copied.synchronize()
            self.acting_stream.join()
            self.environments.send(self._outgoing.numpy())

    def receive(self) -> StepData[NDArray[np.float32]]:
        """Wait for the environments and copy their step data to the learner's device in one transfer."""
        data = self.environments.receive()
        if not np.isfinite(data.memory).all():
            raise RunError(f"{data.non_finite_value()} at step {self.env_step + 1:,}; look at the environment")
        self._incoming.copy_(torch.from_numpy(data.memory))
        if self._is_on_gpu:
            self.received.memory.copy_(self._incoming, non_blocking=True)
        return data

    def restore_environments(self, resumptions: dict[int, Resumption]) -> None:
        """Continue every member's environment, or start a new episode where its state could not be saved."""
        self.environments.restore(resumptions)
        self.observation.copy_(torch.from_numpy(self.environments.data.observation))
        is_new = [resumptions[member].state is None for member in range(len(resumptions))]
        self.agent.end_episode(torch.tensor(is_new, dtype=torch.float32, device=self.device))

    def episode_seeds(self, env_step: int) -> list[int]:
        """One seed per member for episodes that start at an environment step."""
        seeds = self.streams.integers(Stream.EPISODE, self.streams.counter(env_step), 1, _SEED_COUNT)
        own: list[int] = seeds.flatten().tolist()
        return own

    def evaluation_seeds(self, evaluation: int, episodes: int) -> list[list[int]]:
        """Seeds of every member's test episodes; a function of the evaluation's number alone."""
        seeds = self.streams.integers(Stream.EVALUATION, self.streams.counter(evaluation), episodes, _SEED_COUNT)
        rows: list[list[int]] = seeds.tolist()
        return rows

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()


def workers_for(environments: int, task: str) -> int:
    """How many processes step the environments: the fewest among the fastest choices that leave two cores free.

    The process with the most environments determines the time. With 16 cores and 15 environments, fourteen processes
    are no faster than eight: in both cases, one process steps two. A task from a module (`module:Task-v0`) gets a
    process even for one environment: if the task ends its process, the run continues.
    """
    if environments <= 2:
        return 1 if ":" in task else 0
    most_processes = max(2, cores() - 2)
    per_process = -(-environments // most_processes)
    return -(-environments // per_process)
