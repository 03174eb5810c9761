"""Deep deterministic policy gradient with adaptive experience selection, in one file; its lines are marked # AES.

python examples/ddpg_adaptive.py --task InvertedPendulum-v5 --sampler predictive
"""

import copy
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn

from aes_rl import Replay, Signals, Transition, configure
from aes_rl.gradients import Taps, squared_norms  # AES


@dataclass
class Arguments:
    """DDPG with a sampler of aes-rl."""

    task: str = "InvertedPendulum-v5"
    """A Gymnasium task with vector observations and actions."""
    sampler: str = "adaptive"
    """uniform, prioritized, adaptive or predictive."""
    seed: int = 0
    """Of everything."""
    env_steps: int = 60_000
    """Environment steps."""
    capacity: int = 1_000_000
    """Slots of the replay buffer."""
    batch_size: int = 64
    """Draws an update."""
    warm_up_steps: int = 1000
    """Random steps before the first update."""
    actor_learning_rate: float = 1e-4
    """Of the actor."""
    critic_learning_rate: float = 1e-3
    """Of the critic."""
    discount: float = 0.99
    """γ."""
    target_rate: float = 0.001
    """How far the target networks move each update."""
    noise: float = 0.1
    """Standard deviation of the exploration noise, actions being in [−1, 1]."""
    evaluate_every: int = 5000
    """Environment steps between two evaluations."""


def perceptron(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    layers = (nn.Linear(inputs, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, outputs), *last)
    return nn.Sequential(*layers)


def score(actor: nn.Module, task: str, seed: int, episodes: int = 5) -> float:
    """The mean return of the policy without noise."""
    environment = gym.make(task)
    low, high = environment.action_space.low, environment.action_space.high
    total = 0.0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=seed + episode)
        is_over = False
        while not is_over:
            with torch.no_grad():
                action = actor(torch.as_tensor(observation, dtype=torch.float32)).numpy()
            observation, reward, terminated, truncated, _ = environment.step(low + (high - low) * (action + 1) / 2)
            total += float(reward)
            is_over = terminated or truncated
    environment.close()
    return total / episodes


def main(arguments: Arguments) -> None:
    torch.manual_seed(arguments.seed)
    generator = np.random.default_rng(arguments.seed)
    environment = gym.make(arguments.task)
    low, high = environment.action_space.low, environment.action_space.high
    observation_size, action_size = environment.observation_space.shape[0], environment.action_space.shape[0]

    actor = perceptron(observation_size, action_size, nn.Tanh())
    critic = perceptron(observation_size + action_size, 1)
    actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
    optimisers = [
        torch.optim.Adam(actor.parameters(), lr=arguments.actor_learning_rate),
        torch.optim.Adam(critic.parameters(), lr=arguments.critic_learning_rate),
    ]
    taps = {"actor": Taps(actor), "critic": Taps(critic)}  # AES

    replay = Replay(
        [configure(arguments.sampler)],
        capacity=arguments.capacity,
        observation_size=observation_size,
        action_size=action_size,
        seeds=[arguments.seed],
        total_updates=max(1, arguments.env_steps - arguments.warm_up_steps),
    )

    def update(number: int) -> None:
        sample = replay.sample(arguments.batch_size)
        batch, weights = sample.batch, sample.weights[0]
        observation, action, following = batch.observation[0], batch.action[0], batch.next_observation[0]
        tap = {name: taps[name].tap((arguments.batch_size,)) for name in taps}  # AES
        with torch.no_grad():
            value = critic_target(torch.cat([following, actor_target(following)], dim=-1)).squeeze(-1)
            wanted = batch.reward[0] + arguments.discount * (1 - batch.terminated[0]) * value

        with taps["critic"].recording(tap["critic"]):  # AES
            error = critic(torch.cat([observation, action], dim=-1)).squeeze(-1) - wanted
        critic_loss = (weights * error.square()).mean()  # AES: the weights
        with taps["actor"].recording(tap["actor"]):  # AES
            chosen = actor(observation)
        critic.requires_grad_(False)
        actor_loss = -(
            weights * critic(torch.cat([observation, chosen], dim=-1)).squeeze(-1)
        ).mean()  # AES: the weights
        critic.requires_grad_(True)

        for optimiser in optimisers:
            optimiser.zero_grad()
        (critic_loss + actor_loss).backward()
        for optimiser in optimisers:
            optimiser.step()
        with torch.no_grad():
            for target, network in ((actor_target, actor), (critic_target, critic)):
                for old, new in zip(target.parameters(), network.parameters(), strict=True):
                    old.lerp_(new, arguments.target_rate)

        norms = {name: squared_norms(tap[name].grad, weights).unsqueeze(0) for name in taps}  # AES
        replay.feedback(sample.draw, Signals(error.detach().abs().unsqueeze(0), norms))  # AES
        replay.advance(number)  # AES

    observation, _ = environment.reset(seed=arguments.seed)
    for step in range(1, arguments.env_steps + 1):
        if step <= arguments.warm_up_steps:
            action = generator.uniform(-1, 1, action_size)
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(observation, dtype=torch.float32)).numpy()
            action = np.clip(action + arguments.noise * generator.normal(size=action_size), -1, 1)
        following, reward, terminated, truncated, _ = environment.step(low + (high - low) * (action + 1) / 2)
        row = (observation, action, [float(reward)], following, [float(terminated)])
        parts = [torch.as_tensor(np.asarray(part), dtype=torch.float32) for part in row]
        replay.add(Transition(parts[0].unsqueeze(0), parts[1].unsqueeze(0), parts[2], parts[3].unsqueeze(0), parts[4]))
        observation = following
        if terminated or truncated:
            observation, _ = environment.reset()
        if step > arguments.warm_up_steps:
            update(step - arguments.warm_up_steps)
        if step % arguments.evaluate_every == 0 or step == arguments.env_steps:
            print(f"{step:>8} steps, mean return {score(actor, arguments.task, arguments.seed + 1000):.1f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
