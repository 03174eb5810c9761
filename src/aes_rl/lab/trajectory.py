"""Samplers on the policy gradient of the paper's theory: real trajectories, and the exact cost at every update."""

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.agents.trajectory import Items, Trajectory, TrajectoryAgent
from aes_rl.errors import UserError
from aes_rl.lab.simulate import with_one_draw
from aes_rl.lab.variance import captured_fraction, cost, oracle_cost, uniform_cost
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Signal, Signals, as_tensor


class Costs(NamedTuple):
    """The costs at one update, from the gradients of all items; divided by n²."""

    update: int
    cost: float
    least_cost: float
    """f_t(p*_t)/n²."""
    uniform_cost: float
    captured_fraction: float
    largest_norm: float
    mean_return: float
    """Mean undiscounted return of the trajectories in the buffer."""


class Buffer:
    """Items by slot; the sampler chooses the slot."""

    def __init__(self, capacity: int, steps: int, observation_size: int, action_size: int):
        shapes = ((capacity, steps, observation_size), (capacity, steps, action_size), (capacity, steps))
        parts = [torch.zeros(shape, dtype=torch.float64) for shape in (*shapes, (capacity, steps), (capacity,))]
        self.items = Items(*parts)
        self.returns = torch.zeros(capacity, dtype=torch.float64)
        """Undiscounted return of each item's trajectory."""

    def write(self, slot: int, item: Items, total: float) -> None:
        """Store one item in a slot."""
        for own, part in zip(self.items, item, strict=True):
            own[slot] = part[0]
        self.returns[slot] = total


class Collector:
    """Collects trajectories of the current policy in a Gymnasium task."""

    def __init__(self, task: str, config: Trajectory, seed: int):
        self.environment = gymnasium.make(task)
        space = self.environment.action_space
        self.is_discrete = isinstance(space, gymnasium.spaces.Discrete)
        self.action_size = (
            int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else int(np.prod(space.shape or ()))
        )
        self.observation_size = int(np.prod(self.environment.observation_space.shape or ()))
        if self.observation_size == 0:
            raise UserError(f"{task} has no vector observations; the trajectory agent needs them")
        self._space, self._config = space, config
        self._generator = torch.Generator().manual_seed(seed)
        self._seed: int | None = seed

    def collect(self, agent: TrajectoryAgent) -> tuple[list[Items], float]:
        """One trajectory as items, and its undiscounted return."""
        horizon = self._config.horizon
        observations = torch.zeros(horizon, self.observation_size, dtype=torch.float64)
        actions = torch.zeros(horizon, self.action_size, dtype=torch.float64)
        logs, taken, rewards = (torch.zeros(horizon, dtype=torch.float64) for _ in range(3))
        observation, _ = self.environment.reset(seed=self._seed)
        self._seed = None
        for step in range(horizon):
            observations[step] = torch.from_numpy(np.asarray(observation, np.float64).reshape(-1))
            actions[step], logs[step] = agent.act(observations[step], self._generator)
            taken[step] = 1
            observation, reward, terminated, truncated, _ = self.environment.step(
                self._environment_action(actions[step])
            )
            rewards[step] = float(reward)
            if terminated or truncated:
                break
        discounts = self._config.discount ** torch.arange(horizon, dtype=torch.float64)
        if self._config.items == "trajectories":
            whole = Items(observations, actions, logs, taken, (rewards * discounts).sum())
            return [Items(*(part.unsqueeze(0) for part in whole))], rewards.sum().item()
        pairs = []
        for step in range(int(taken.sum())):
            following = (rewards[step:] * discounts[: horizon - step]).sum()
            parts = (part[step][None, None] for part in (observations, actions, logs, taken))
            pairs.append(Items._make((*parts, following[None])))
        return pairs, rewards.sum().item()

    def _environment_action(self, action: Tensor) -> int | NDArray[np.floating]:
        if self.is_discrete:
            return int(action.argmax())
        assert isinstance(self._space, gymnasium.spaces.Box)
        low, high = self._space.low, self._space.high
        clipped: NDArray[np.floating] = np.clip(action.numpy().reshape(low.shape), low, high).astype(low.dtype)
        return clipped


def run(
    config: Trajectory,
    task: str,
    sampler_config: SamplerConfig | str,
    *,
    capacity: int,
    updates: int,
    is_static: bool = False,
    seed: int = 0,
) -> Iterator[Costs]:
    """Fill the buffer, then make one update per collected trajectory (Algorithm 2); yields the costs at each update.

    A static buffer is not written to after it is full: the setting of Corollaries 1 and 2.
    """
    collector = Collector(task, config, seed)
    sizes = (collector.observation_size, collector.action_size)
    agent = TrajectoryAgent(config, *sizes, collector.is_discrete, seed)
    buffer = Buffer(capacity, config.horizon if config.items == "trajectories" else 1, *sizes)
    sampler = Sampler([with_one_draw(sampler_config)], capacity=capacity, total_updates=updates, dtype=torch.float64)
    streams = Streams([seed], sampler.backend)
    has_full_information = Signal.EVERY_GRADIENT_NORM in sampler.needs
    while len(sampler) < capacity:
        _store(collector, agent, buffer, sampler, streams)
    for update in range(1, updates + 1):
        gradients = agent.gradients(buffer.items, float(buffer.items.discounted_return.mean()))
        norms = gradients.square().sum(dim=1)
        probabilities = sampler.probabilities()[0]
        yield _costs(update, norms, probabilities, buffer)
        draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(update), config.batch_size))
        slots = draw.slots[0]
        agent.ascend((gradients[slots] * sampler.weights(draw)[0].unsqueeze(1)).mean(dim=0))
        if has_full_information:
            sampler.observe_all(norms.unsqueeze(0))
        else:
            sampler.feedback(draw, Signals(norms[slots].sqrt().unsqueeze(0), {"policy": norms[slots].unsqueeze(0)}))
        if not is_static:
            _store(collector, agent, buffer, sampler, streams)
        sampler.advance(update)
    collector.environment.close()


def _store(collector: Collector, agent: TrajectoryAgent, buffer: Buffer, sampler: Sampler, streams: Streams) -> None:
    items, total = collector.collect(agent)
    for item in items:
        slot = int(as_tensor(sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2)))[0, 0])
        buffer.write(slot, item, total)


def _costs(update: int, norms: Tensor, probabilities: Tensor, buffer: Buffer) -> Costs:
    square = len(norms) ** 2
    return Costs(
        update,
        cost(norms, probabilities).item() / square,
        oracle_cost(norms).item() / square,
        uniform_cost(norms).item() / square,
        captured_fraction(norms, probabilities).item(),
        norms.max().item(),
        buffer.returns.mean().item(),
    )
