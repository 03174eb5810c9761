"""Deep Q-learning with prioritized replay, in one file. The lines that the sampler adds are marked # AES.

python examples/dqn_prioritized.py --task CartPole-v1 --sampler prioritized
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
    """Deep Q-learning with a sampler of aes-rl."""

    task: str = "CartPole-v1"
    """A Gymnasium task with vector observations and discrete actions."""
    sampler: str = "prioritized"
    """uniform, prioritized, adaptive or predictive."""
    seed: int = 0
    """Of everything."""
    env_steps: int = 30_000
    """Environment steps."""
    capacity: int = 100_000
    """Slots of the replay buffer."""
    batch_size: int = 64
    """Draws an update."""
    warm_up_steps: int = 1000
    """Random steps before the first update."""
    learning_rate: float = 5e-4
    """Of the network."""
    discount: float = 0.99
    """γ."""
    copy_every: int = 250
    """Updates between two copies of the network to its target."""
    last_exploration: float = 0.05
    """Probability of a random action after a tenth of the run."""
    hidden: int = 128
    """Units of the two hidden layers."""
    evaluate_every: int = 5000
    """Environment steps between two evaluations."""


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def best_action(network: nn.Module, observation: np.ndarray) -> int:
    with torch.no_grad():
        return int(network(torch.as_tensor(observation, dtype=torch.float32)).argmax())


def score(network: nn.Module, task: str, seed: int, episodes: int = 5) -> float:
    """The mean return of the greedy policy."""
    environment = gym.make(task)
    total = 0.0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=seed + episode)
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, _ = environment.step(best_action(network, observation))
            total += float(reward)
            is_over = terminated or truncated
    environment.close()
    return total / episodes


def main(arguments: Arguments) -> None:
    torch.manual_seed(arguments.seed)
    generator = np.random.default_rng(arguments.seed)
    environment = gym.make(arguments.task)
    observation_size, actions = environment.observation_space.shape[0], int(environment.action_space.n)

    network, target = (perceptron(observation_size, arguments.hidden, actions) for _ in range(2))
    target.load_state_dict(network.state_dict())
    optimiser = torch.optim.Adam(network.parameters(), lr=arguments.learning_rate)
    taps = Taps(network)  # AES

    replay = Replay(
        [configure(arguments.sampler)],
        capacity=arguments.capacity,
        observation_size=observation_size,
        action_size=1,
        seeds=[arguments.seed],
        total_updates=max(1, arguments.env_steps - arguments.warm_up_steps),
    )

    def update(number: int) -> None:
        sample = replay.sample(arguments.batch_size)
        batch, weights = sample.batch, sample.weights[0]
        with torch.no_grad():
            following = target(batch.next_observation[0]).amax(dim=-1)
            wanted = batch.reward[0] + arguments.discount * (1 - batch.terminated[0]) * following
        tap = taps.tap((arguments.batch_size,))  # AES
        with taps.recording(tap):  # AES
            values = network(batch.observation[0])
        value = values.gather(1, batch.action[0].long()).squeeze(-1)
        losses = nn.functional.smooth_l1_loss(value, wanted, reduction="none")
        optimiser.zero_grad()
        (weights * losses).mean().backward()  # AES: the weights
        optimiser.step()
        if number % arguments.copy_every == 0:
            target.load_state_dict(network.state_dict())

        error = (value - wanted).detach().abs().clamp(max=1).unsqueeze(0)  # AES: clipped, as in the loss
        norms = {"critic": squared_norms(tap.grad, weights).unsqueeze(0)}  # AES
        replay.feedback(sample.draw, Signals(error, norms))  # AES
        replay.advance(number)  # AES

    observation, _ = environment.reset(seed=arguments.seed)
    for step in range(1, arguments.env_steps + 1):
        exploration = max(arguments.last_exploration, 1 - 10 * step / arguments.env_steps)
        if step <= arguments.warm_up_steps or generator.random() < exploration:
            action = int(generator.integers(actions))
        else:
            action = best_action(network, observation)
        following, reward, terminated, truncated, _ = environment.step(action)
        row = ([observation], [[action]], [float(reward)], [following], [float(terminated)])
        replay.add(Transition(*(torch.as_tensor(np.asarray(part), dtype=torch.float32) for part in row)))
        observation = following
        if terminated or truncated:
            observation, _ = environment.reset()
        if step > arguments.warm_up_steps:
            update(step - arguments.warm_up_steps)
        if step % arguments.evaluate_every == 0 or step == arguments.env_steps:
            mean = score(network, arguments.task, arguments.seed + 1000)
            print(f"{step:>8} steps, mean return {mean:.1f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
