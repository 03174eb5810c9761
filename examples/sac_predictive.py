"""Soft actor-critic with predictive selection, in one file. The lines that selection adds are marked # AES.

python examples/sac_predictive.py --task Hopper-v5 --sampler predictive
"""

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
    """Soft actor-critic with a sampler of aes-rl."""

    task: str = "Hopper-v5"
    """A Gymnasium task with vector observations and actions."""
    sampler: str = "predictive"
    """uniform, prioritized, adaptive or predictive."""
    seed: int = 0
    """Of everything."""
    env_steps: int = 100_000
    """Environment steps."""
    capacity: int = 1_000_000
    """Slots of the replay buffer."""
    batch_size: int = 256
    """Draws an update."""
    warm_up_steps: int = 5000
    """Random steps before the first update."""
    learning_rate: float = 3e-4
    """Of all networks."""
    discount: float = 0.99
    """γ."""
    target_rate: float = 0.005
    """How far the target critics move each update."""
    hidden: int = 256
    """Units of the two hidden layers."""
    evaluate_every: int = 5000
    """Environment steps between two evaluations."""


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def squashed(head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An action in [−1, 1] and its log probability, from the actor's output."""
    mean, log_deviation = head.chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_deviation.clamp(-20, 2).exp())
    raw = normal.rsample()
    correction = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
    return torch.tanh(raw), (normal.log_prob(raw) - correction).sum(dim=-1)


def score(actor: nn.Module, task: str, seed: int, episodes: int = 5) -> float:
    """The mean return of the greedy policy."""
    environment = gym.make(task)
    low, high = environment.action_space.low, environment.action_space.high
    total = 0.0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=seed + episode)
        is_over = False
        while not is_over:
            with torch.no_grad():
                mean = actor(torch.as_tensor(observation, dtype=torch.float32)).chunk(2, dim=-1)[0]
            action = low + (high - low) * (torch.tanh(mean).numpy() + 1) / 2
            observation, reward, terminated, truncated, _ = environment.step(action)
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

    actor = perceptron(observation_size, arguments.hidden, 2 * action_size)
    critics = [perceptron(observation_size + action_size, arguments.hidden, 1) for _ in range(2)]
    targets = [perceptron(observation_size + action_size, arguments.hidden, 1) for _ in range(2)]
    for target, critic in zip(targets, critics, strict=True):
        target.load_state_dict(critic.state_dict())
    log_temperature = torch.zeros(1, requires_grad=True)
    parameters = [*actor.parameters(), *critics[0].parameters(), *critics[1].parameters(), log_temperature]
    optimiser = torch.optim.Adam(parameters, lr=arguments.learning_rate)
    networks = {"actor": actor, "critic_1": critics[0], "critic_2": critics[1]}
    taps = {name: Taps(network) for name, network in networks.items()}  # AES

    updates = max(1, arguments.env_steps - arguments.warm_up_steps)
    replay = Replay(
        [configure(arguments.sampler)],
        capacity=arguments.capacity,
        observation_size=observation_size,
        action_size=action_size,
        seeds=[arguments.seed],
        total_updates=updates,
    )

    def update(number: int) -> None:
        sample = replay.sample(arguments.batch_size)
        batch, weights = sample.batch, sample.weights[0]
        observation, action = batch.observation[0], batch.action[0]
        following, reward, terminated = batch.next_observation[0], batch.reward[0], batch.terminated[0]
        tap = {name: taps[name].tap((arguments.batch_size,)) for name in networks}  # AES

        temperature = log_temperature.exp().detach()
        with torch.no_grad():
            next_action, next_log = squashed(actor(following))
            pairs = torch.cat([following, next_action], dim=-1)
            value = torch.minimum(*(target(pairs).squeeze(-1) for target in targets)) - temperature * next_log
            wanted = reward + arguments.discount * (1 - terminated) * value

        pairs, losses, errors = torch.cat([observation, action], dim=-1), [], []
        for name, critic in zip(("critic_1", "critic_2"), critics, strict=True):
            with taps[name].recording(tap[name]):  # AES
                error = critic(pairs).squeeze(-1) - wanted
            losses.append((weights * error.square()).mean())  # AES: the weights
            errors.append(error.detach().abs())

        with taps["actor"].recording(tap["actor"]):  # AES
            head = actor(observation)
        new_action, log = squashed(head)
        for critic in critics:
            critic.requires_grad_(False)
        values = torch.minimum(
            *(critic(torch.cat([observation, new_action], dim=-1)).squeeze(-1) for critic in critics)
        )
        for critic in critics:
            critic.requires_grad_(True)
        losses.append((weights * (temperature * log - values)).mean())  # AES: the weights
        losses.append((weights * -log_temperature * (log.detach() - action_size)).mean())  # AES: the weights

        optimiser.zero_grad()
        sum(losses).backward()
        optimiser.step()
        with torch.no_grad():
            for target, critic in zip(targets, critics, strict=True):
                for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                    old.lerp_(new, arguments.target_rate)

        norms = {name: squared_norms(tap[name].grad, weights).unsqueeze(0) for name in networks}  # AES
        replay.feedback(sample.draw, Signals(torch.stack(errors).mean(dim=0).unsqueeze(0), norms))  # AES
        replay.advance(number)  # AES

    observation, _ = environment.reset(seed=arguments.seed)
    for step in range(1, arguments.env_steps + 1):
        if step <= arguments.warm_up_steps:
            action = generator.uniform(-1, 1, action_size)
        else:
            with torch.no_grad():
                action = squashed(actor(torch.as_tensor(observation, dtype=torch.float32)))[0].numpy()
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
