"""TorchRL's SAC with a sampler of aes-rl; the lines that it adds to the library's own example are marked # AES.

python examples/torchrl_sac.py --task Pendulum-v1 --sampler predictive
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

from aes_rl.integrations.torchrl import SelectiveSampler, SelectiveWriter, attach  # AES


@dataclass
class Arguments:
    """SAC of TorchRL with a sampler of aes-rl."""

    task: str = "Pendulum-v1"
    """A Gymnasium task with vector observations and actions."""
    sampler: str = "adaptive"
    """uniform, prioritized, adaptive or predictive."""
    seed: int = 0
    """Of everything."""
    env_steps: int = 10_000
    """Environment steps."""
    capacity: int = 100_000
    """Slots of the replay buffer."""
    batch_size: int = 256
    """Draws an update."""
    warm_up_steps: int = 1000
    """Random steps before the first update."""
    evaluate_every: int = 1000
    """Environment steps between two evaluations."""


def main(arguments: Arguments) -> None:
    torch.manual_seed(arguments.seed)
    generator = np.random.default_rng(arguments.seed)
    environment = gym.make(arguments.task)
    low, high = environment.action_space.low, environment.action_space.high
    observations, actions = environment.observation_space.shape[0], environment.action_space.shape[0]

    net = MLP(in_features=observations, out_features=2 * actions, num_cells=[256, 256], activation_class=nn.ReLU)
    module = TensorDictModule(nn.Sequential(net, NormalParamExtractor()), ["observation"], ["loc", "scale"])
    actor = ProbabilisticActor(module, in_keys=["loc", "scale"], distribution_class=TanhNormal)
    net = MLP(in_features=observations + actions, out_features=1, num_cells=[256, 256], activation_class=nn.ReLU)
    loss = SACLoss(
        actor,
        ValueOperator(net, in_keys=["observation", "action"]),
        loss_function="l2",
        target_entropy=-float(actions),
        reduction="none",  # AES: with "mean" the loss would divide by the sum of the weights
        deactivate_vmap=True,  # AES: norms cannot be read under vmap
        scalar_output_mode="exclude",
    )
    loss.make_value_estimator(gamma=0.99)
    updates = max(1, arguments.env_steps - arguments.warm_up_steps)
    sampler = SelectiveSampler(  # AES
        arguments.sampler, capacity=arguments.capacity, seed=arguments.seed, total_updates=updates
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(arguments.capacity),
        sampler=sampler,  # AES
        writer=SelectiveWriter(sampler),  # AES
        batch_size=arguments.batch_size,
    )
    attach(loss, sampler)  # AES
    target, optimiser = SoftUpdate(loss, eps=0.995), torch.optim.Adam(loss.parameters(), lr=3e-4)

    def policy(observation: np.ndarray) -> TanhNormal:
        given = TensorDict({"observation": torch.as_tensor(observation, dtype=torch.float32)[None]}, [1])
        with torch.no_grad():
            return loss.actor_network.get_dist(given)

    def score(episodes: int = 5) -> float:
        total, test = 0.0, gym.make(arguments.task)
        for episode in range(episodes):
            observation, _ = test.reset(seed=arguments.seed + 1000 + episode)
            is_over = False
            while not is_over:
                action = policy(observation).deterministic_sample[0].numpy()
                observation, reward, terminated, truncated, _ = test.step(low + (high - low) * (action + 1) / 2)
                total += float(reward)
                is_over = terminated or truncated
        return total / episodes

    observation, _ = environment.reset(seed=arguments.seed)
    for step in range(1, arguments.env_steps + 1):
        if step <= arguments.warm_up_steps:
            action = generator.uniform(-1, 1, actions).astype(np.float32)
        else:
            action = policy(observation).rsample()[0].numpy()
        following, reward, terminated, truncated, _ = environment.step(low + (high - low) * (action + 1) / 2)
        after = {
            "observation": torch.as_tensor(following, dtype=torch.float32),
            "reward": torch.tensor([float(reward)]),
            "done": torch.tensor([terminated or truncated]),
            "terminated": torch.tensor([terminated]),
        }
        seen = torch.as_tensor(observation, dtype=torch.float32)
        own = {"observation": seen, "action": torch.from_numpy(action), "next": TensorDict(after, [])}
        buffer.add(TensorDict(own, []))
        observation = environment.reset()[0] if terminated or truncated else following
        if step > arguments.warm_up_steps:
            losses = loss(buffer.sample())
            optimiser.zero_grad()
            (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).mean().backward()  # AES: the mean
            optimiser.step()
            target.step()
        if step % arguments.evaluate_every == 0 or step == arguments.env_steps:
            print(f"{step:>8} steps, mean return {score():.1f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
