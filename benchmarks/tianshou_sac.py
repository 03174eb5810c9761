"""Tianshou's own SAC with the settings of its published runs, on today's version of a task.

Tells whether a difference from the published curves is ours or the task's. Writes one line an evaluation, mean return
of ten greedy episodes every 10,000 environment steps, to `TARGET`; a seed and 150,000 steps take half an hour of one
core. Like the published curves, but unlike these lines, Tianshou's own logs do not count the random steps.
"""

import argparse
import csv
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, ReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

RANDOM_STEPS, EPOCH, EPISODES, BATCH, HIDDEN = 10_000, 10_000, 10, 256, (256, 256)
LEARNING_RATE, TEMPERATURE = 1e-3, 0.2


def build(task: str) -> SAC:
    """SAC as the published runs had it."""
    environment = gym.make(task)
    sizes = {"state_shape": environment.observation_space.shape, "hidden_sizes": HIDDEN}
    action_shape = environment.action_space.shape
    adam = AdamOptimizerFactory(lr=LEARNING_RATE)
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**sizes), action_shape=action_shape, unbounded=True, conditioned_sigma=True
    )
    critics = [ContinuousCritic(preprocess_net=Net(**sizes, action_shape=action_shape, concat=True)) for _ in range(2)]
    return SAC(
        policy=SACPolicy(actor=actor, action_space=environment.action_space), policy_optim=adam, critic=critics[0],
        critic_optim=adam, critic2=critics[1], critic2_optim=adam, alpha=TEMPERATURE, tau=0.005, gamma=0.99,
    )  # fmt: skip


def train(task: str, seed: int, steps: int, target: Path) -> None:
    """One seed."""
    np.random.seed(seed)  # noqa: NPY002 - the library draws from the global generator
    torch.manual_seed(seed)
    algorithm = build(task)
    own, test = (DummyVectorEnv([lambda: gym.make(task)] * count) for count in (1, EPISODES))
    own.seed(seed)
    test.seed(seed + 10_000)
    collector = Collector(algorithm, own, ReplayBuffer(1_000_000), exploration_noise=True)
    collector.reset()
    collector.collect(n_step=RANDOM_STEPS, random=True)
    epochs = (steps - RANDOM_STEPS) // EPOCH
    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=collector, test_collector=Collector(algorithm, test), batch_size=BATCH,
            max_epochs=epochs, epoch_num_steps=EPOCH, collection_step_num_env_steps=1,
            test_step_num_episodes=EPISODES, update_step_num_gradient_steps_per_sample=1.0, test_in_training=False,
            show_progress=False, verbose=False,
        )
    )  # fmt: skip
    trainer.reset()
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env_step", "seed", "score"])
        for _ in range(epochs):
            epoch = trainer.execute_epoch()
            score = epoch.test_collect_stat.returns_stat.mean
            step = RANDOM_STEPS + epoch.epoch * EPOCH
            writer.writerow([step, seed, f"{score:.5g}"])
            file.flush()
            print(f"{task} seed {seed} step {step:,}: {score:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="CSV file to write")
    parser.add_argument("--task", default="Hopper-v5")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150_000, help="environment steps, random ones included")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options.task, options.seed, options.steps, options.target)


if __name__ == "__main__":
    main()
