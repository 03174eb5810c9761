"""Deep deterministic policy gradient with adaptive experience selection. The lines that AES adds are marked # AES.

The shortest of the examples: its scores are the returns of the exploring episodes, and its settings are constants.

python examples/ddpg_adaptive.py --task InvertedPendulum-v5 --sampler predictive
"""

from copy import deepcopy
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.wrappers import RecordEpisodeStatistics, RescaleAction
from torch import nn

from aes_rl import Replay, Signals, Transition, configure
from aes_rl.gradients import Taps, squared_norms  # AES

LEARNING_RATES = {"actor": 1e-4, "critic": 1e-3}
DISCOUNT, TARGET_RATE = 0.99, 0.001
EXPLORATION = 0.1
"""Standard deviation of the noise that is added to actions in [−1, 1]."""


@dataclass
class Arguments:
    """DDPG with a sampler of aes-rl."""

    task: str = "InvertedPendulum-v5"
    """A Gymnasium task with vector observations and actions."""
    sampler: str = "adaptive"
    """uniform, prioritized, adaptive or predictive."""
    env_steps: int = 60_000
    """Environment steps, of which the first `warm_up_steps` are random and without updates."""
    warm_up_steps: int = 1000
    """Random steps before the first update."""
    batch_size: int = 64
    """Draws per update."""
    capacity: int = 1_000_000
    """Slots of the replay buffer."""
    seed: int = 0
    """Seed of the environment, the networks and the draws."""


def network(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, outputs), *last
    )


def main(args: Arguments) -> None:
    torch.manual_seed(args.seed)
    random = np.random.default_rng(args.seed)
    environment = RecordEpisodeStatistics(
        RescaleAction(gym.make(args.task), np.float32(-1), np.float32(1)), buffer_length=10
    )
    sizes = environment.observation_space.shape[0], environment.action_space.shape[0]
    trained = nn.ModuleDict({"actor": network(*sizes, nn.Tanh()), "critic": network(sum(sizes), 1)})
    target = deepcopy(trained)
    groups = [{"params": own.parameters(), "lr": LEARNING_RATES[name]} for name, own in trained.items()]
    optimiser = torch.optim.Adam(groups)
    taps = {name: Taps(own) for name, own in trained.items()}  # AES
    updates = max(1, args.env_steps - args.warm_up_steps)
    replay = Replay(
        [configure(args.sampler)], capacity=args.capacity, observation_size=sizes[0], action_size=sizes[1],
        seeds=[args.seed], total_updates=updates,
    )  # fmt: skip

    def value(networks: nn.ModuleDict, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return networks["critic"](torch.cat([observations, actions], dim=-1)).squeeze(-1)

    def update(number: int) -> None:
        batch, draw, weights, _ = replay.sample(args.batch_size)  # every tensor has a leading axis of one member
        tap = {name: own.tap(weights.shape[1:]) for name, own in taps.items()}  # AES
        with torch.no_grad():
            later = value(target, batch.next_observation[0], target["actor"](batch.next_observation[0]))
            wanted = batch.reward[0] + DISCOUNT * (1 - batch.terminated[0]) * later
        with taps["critic"].recording(tap["critic"]):  # AES
            error = value(trained, batch.observation[0], batch.action[0]) - wanted
        with taps["actor"].recording(tap["actor"]):  # AES
            action = trained["actor"](batch.observation[0])
        critic_loss = (weights[0] * error.square()).mean()  # AES: the weights
        trained["critic"].requires_grad_(False)
        actor_loss = -(weights[0] * value(trained, batch.observation[0], action)).mean()  # AES: the weights
        trained["critic"].requires_grad_(True)
        optimiser.zero_grad()
        (critic_loss + actor_loss).backward()
        optimiser.step()
        with torch.no_grad():
            for old, new in zip(target.parameters(), trained.parameters(), strict=True):
                old.lerp_(new, TARGET_RATE)
        norms = {name: squared_norms(own.grad, weights[0])[None] for name, own in tap.items()}  # AES
        replay.feedback(draw, Signals(error.detach().abs()[None], norms))  # AES
        replay.advance(number)  # AES

    observation, _ = environment.reset(seed=args.seed)
    for step in range(1, args.env_steps + 1):
        action = random.uniform(-1, 1, sizes[1])
        if step > args.warm_up_steps:
            with torch.no_grad():
                greedy = trained["actor"](torch.as_tensor(observation, dtype=torch.float32)).numpy()
            action = np.clip(greedy + EXPLORATION * random.normal(size=sizes[1]), -1, 1)
        following, reward, terminated, truncated, _ = environment.step(action)
        row = (observation, action, reward, following, terminated)
        replay.add(Transition(*(torch.tensor(np.array([part]), dtype=torch.float32) for part in row)))
        observation = environment.reset()[0] if terminated or truncated else following
        if step > args.warm_up_steps:
            update(step - args.warm_up_steps)
        if (step % 5000 == 0 or step == args.env_steps) and environment.return_queue:
            print(f"{step:>8} steps, mean return {np.mean(environment.return_queue):.1f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
