"""Time per training step with AES over the library's own buffer, interleaved in one process: make bench-integrations.

SAC on HalfCheetah-v5's sizes, batch 256, two hidden layers of 256; DQN at its default batch of 32; one thread. A step
is what the library does between two environment steps: store one transition, draw, update.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from aes_rl import Adaptive

ROUNDS, STEPS, FILLED = 80, 10, 5000
RESULTS = Path(__file__).parent / "results" / "integrations.json"
Step = Callable[[], None]


def rows(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=(count, 1, size)).astype(np.float32) for size in (17, 17, 6)]


def sb3(algorithm: str, is_ours: bool) -> Step:
    import stable_baselines3
    from stable_baselines3.common.logger import configure

    from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

    own = {"replay_buffer_class": SelectiveReplayBuffer, "replay_buffer_kwargs": {"sampler": Adaptive()}}
    kind, sizes = getattr(stable_baselines3, algorithm), {"net_arch": [256, 256]}
    model = kind(
        "MlpPolicy",
        "HalfCheetah-v5",
        policy_kwargs=sizes,
        batch_size=256,
        seed=0,
        device="cpu",
        **(own if is_ours else {}),
    )
    model.set_logger(configure(format_strings=[]))
    if is_ours:
        attach(model)
    stored = iter(zip(*rows(FILLED + (ROUNDS + 1) * STEPS), strict=True))

    def add() -> None:
        observation, following, action = next(stored)
        model.replay_buffer.add(observation, following, action.clip(-1, 1), np.ones(1), np.zeros(1, bool), [{}])

    for _ in range(FILLED):
        add()

    def step() -> None:
        add()
        model.train(1, 256)

    return step


def dqn(policy: str, sampler: str, is_ours: bool) -> Step:
    """DQN's step at its default batch, with vectors of 8 or with four frames of 84 × 84."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import configure

    from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

    choice = {"sampler": sampler, "total_updates": (ROUNDS + 1) * STEPS}
    own = {"replay_buffer_class": SelectiveReplayBuffer, "replay_buffer_kwargs": choice}
    frames = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    space = frames if policy == "CnnPolicy" else gym.spaces.Box(-1, 1, (8,), np.float32)
    model = DQN(policy, SpacesOnly(space), buffer_size=1000, seed=0, device="cpu", **(own if is_ours else {}))
    model.set_logger(configure(format_strings=[]))
    if is_ours:
        attach(model)
    space.seed(0)
    observations = [space.sample()[np.newaxis] for _ in range(100)]
    number = 0

    def add() -> None:
        nonlocal number
        number += 1
        observation, following = observations[number % 100], observations[(number + 1) % 100]
        action = np.array([[number % 4]])
        model.replay_buffer.add(observation, following, action, np.ones(1), np.zeros(1, bool), [{}])

    for _ in range(1000):
        add()

    def step() -> None:
        add()
        model.train(1, 32)

    return step


class SpacesOnly(gym.Env):
    """The spaces of a task; it is never stepped."""

    action_space = gym.spaces.Discrete(4)

    def __init__(self, space: gym.Space):
        self.observation_space = space


def tianshou(is_ours: bool) -> Step:
    from tianshou.algorithm import SAC
    from tianshou.algorithm.algorithm_base import policy_within_training_step
    from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

    from aes_rl.integrations.tianshou import SelectiveReplayBuffer, attach

    adam, sizes = AdamOptimizerFactory(lr=3e-4), {"state_shape": (17,), "hidden_sizes": [256, 256]}
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**sizes), action_shape=(6,), unbounded=True, conditioned_sigma=True
    )
    critics = [ContinuousCritic(preprocess_net=Net(**sizes, action_shape=(6,), concat=True)) for _ in range(2)]
    algorithm = SAC(
        policy=SACPolicy(actor=actor, action_space=gym.spaces.Box(-1, 1, (6,))), policy_optim=adam,
        critic=critics[0], critic_optim=adam, critic2=critics[1], critic2_optim=adam, alpha=AutoAlpha(-6.0, 0.0, adam),
    )  # fmt: skip
    buffer = SelectiveReplayBuffer(1_000_000, sampler=Adaptive()) if is_ours else ReplayBuffer(1_000_000)
    if is_ours:
        attach(algorithm, buffer)
    stored = iter(zip(*rows(FILLED + (ROUNDS + 1) * STEPS), strict=True))

    def add() -> None:
        observation, following, action = (part[0] for part in next(stored))
        ends = {"terminated": False, "truncated": False}
        buffer.add(Batch(obs=observation, act=action.clip(-1, 1), rew=1.0, obs_next=following, info={}, **ends))

    for _ in range(FILLED):
        add()

    def step() -> None:
        add()
        with policy_within_training_step(algorithm.policy):
            algorithm.update(sample_size=256, buffer=buffer)

    return step


def torchrl(is_ours: bool) -> Step:
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torch import nn
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import SACLoss, SoftUpdate

    from aes_rl.integrations.torchrl import SelectiveSampler, SelectiveWriter, attach

    body = nn.Sequential(MLP(in_features=17, out_features=12, num_cells=[256, 256], activation_class=nn.ReLU))
    head = nn.Sequential(body, NormalParamExtractor())
    module = TensorDictModule(head, in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(module, in_keys=["loc", "scale"], distribution_class=TanhNormal)
    net = MLP(in_features=23, out_features=1, num_cells=[256, 256], activation_class=nn.ReLU)
    critic = ValueOperator(net, in_keys=["observation", "action"])
    loss = SACLoss(
        actor, critic, loss_function="l2", target_entropy=-6.0, reduction="none", deactivate_vmap=True,
        scalar_output_mode="exclude",
    )  # fmt: skip
    chooser = SelectiveSampler(Adaptive(), capacity=1_000_000)
    choice = {"sampler": chooser, "writer": SelectiveWriter(chooser)} if is_ours else {}
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000), batch_size=256, **choice)
    if is_ours:
        attach(loss, chooser)
    target, optimiser = SoftUpdate(loss, eps=0.995), torch.optim.Adam(loss.parameters(), lr=3e-4)
    parts = [torch.from_numpy(part[:, 0]) for part in rows(FILLED + (ROUNDS + 1) * STEPS)]
    count, ends = len(parts[0]), torch.zeros(len(parts[0]), 1, dtype=torch.bool)
    following = {"observation": parts[1], "reward": torch.ones(count, 1), "done": ends, "terminated": ends}
    data = TensorDict(
        {"observation": parts[0], "action": parts[2].clamp(-0.99, 0.99), "next": TensorDict(following, [count])},
        [count],
    )
    buffer.extend(data[:FILLED])
    position = FILLED

    def step() -> None:
        nonlocal position
        buffer.extend(data[position : position + 1])
        position += 1
        losses = loss(buffer.sample())
        optimiser.zero_grad()
        (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).mean().backward()
        optimiser.step()
        target.step()

    return step


HOSTS = {
    "sb3": (partial(sb3, "SAC"), "stable-baselines3"),
    "sb3_td3": (partial(sb3, "TD3"), "stable-baselines3"),
    "sb3_dqn_mlp_prioritized": (partial(dqn, "MlpPolicy", "prioritized"), "stable-baselines3"),
    "sb3_dqn_cnn_prioritized": (partial(dqn, "CnnPolicy", "prioritized"), "stable-baselines3"),
    "sb3_dqn_cnn_predictive": (partial(dqn, "CnnPolicy", "predictive"), "stable-baselines3"),
    "torchrl": (torchrl, "torchrl"),
    "tianshou": (tianshou, "tianshou"),
}


def ratio_of(make: Callable[[bool], Step]) -> tuple[float, float]:
    """Median over rounds of ours over theirs, and milliseconds of theirs."""
    own, theirs = make(True), make(False)
    ratios, base = [], []
    for number in range(ROUNDS + 1):
        seconds = {}
        for name, step in (("own", own), ("theirs", theirs)) if number % 2 else (("theirs", theirs), ("own", own)):
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            seconds[name] = time.perf_counter() - start
        if number:  # the first round warms up
            ratios.append(seconds["own"] / seconds["theirs"])
            base.append(seconds["theirs"] / STEPS * 1e3)
    return statistics.median(ratios), statistics.median(base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(HOSTS), help="of: " + ", ".join(HOSTS))
    parser.add_argument("--update", action="store_true", help="write the result to benchmarks/results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gym.logger.min_level = gym.logger.ERROR
    figures: dict[str, object] = json.loads(RESULTS.read_text())
    for name in arguments.only:
        make, package = HOSTS[name]
        figures[name], base = ratio_of(make)
        figures[f"{name}_own_buffer_ms"] = base
        figures[f"{name}_version"] = version(package)
    figures["torch"] = version("torch")
    if arguments.update:
        RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    for name in arguments.only:
        print(f"{name}: {figures[name]:.3f}")


if __name__ == "__main__":
    main()
