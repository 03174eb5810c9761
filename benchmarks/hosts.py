"""Training loops of the host libraries on Pendulum-v1, each with its own buffer or with our uniform sampler."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from aes_rl import Uniform

TASK, STEPS, WARM_UP, BATCH, HIDDEN = "Pendulum-v1", 4000, 400, 64, [64, 64]
LEARNING_RATE = 1e-3


def sb3(is_ours: bool, seed: int) -> list[float]:
    """Returns of the training episodes of SAC."""
    from stable_baselines3 import SAC

    from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

    own = {"replay_buffer_class": SelectiveReplayBuffer, "replay_buffer_kwargs": {"sampler": Uniform()}}
    model = SAC(
        "MlpPolicy", TASK, learning_rate=LEARNING_RATE, buffer_size=STEPS, learning_starts=WARM_UP, batch_size=BATCH,
        policy_kwargs={"net_arch": HIDDEN}, seed=seed, device="cpu", **(own if is_ours else {}),
    )  # fmt: skip
    if is_ours:
        attach(model)
    model.learn(STEPS)
    return [float(episode["r"]) for episode in model.ep_info_buffer]


def tianshou(is_ours: bool, seed: int) -> list[float]:
    """The same in Tianshou."""
    from tianshou.algorithm import SAC
    from tianshou.algorithm.algorithm_base import policy_within_training_step
    from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

    from aes_rl.integrations.tianshou import SelectiveReplayBuffer, attach

    torch.manual_seed(seed)
    adam, sizes = AdamOptimizerFactory(lr=LEARNING_RATE), {"state_shape": (3,), "hidden_sizes": HIDDEN}
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**sizes), action_shape=(1,), unbounded=True, conditioned_sigma=True
    )
    critics = [ContinuousCritic(preprocess_net=Net(**sizes, action_shape=(1,), concat=True)) for _ in range(2)]
    algorithm = SAC(
        policy=SACPolicy(actor=actor, action_space=gym.spaces.Box(-1, 1, (1,))), policy_optim=adam, critic=critics[0],
        critic_optim=adam, critic2=critics[1], critic2_optim=adam, alpha=AutoAlpha(-1.0, 0.0, adam),
    )  # fmt: skip
    buffer = (
        SelectiveReplayBuffer(STEPS, sampler=Uniform(), seed=seed) if is_ours else ReplayBuffer(STEPS, random_seed=seed)
    )
    if is_ours:
        attach(algorithm, buffer)

    def act(observation: np.ndarray) -> np.ndarray:
        with torch.no_grad(), policy_within_training_step(algorithm.policy):
            return algorithm.policy(Batch(obs=observation[np.newaxis], info={})).act[0].numpy()

    def learn(observation: np.ndarray, action: np.ndarray, reward: float, following: np.ndarray, step: int) -> None:
        ends = {"terminated": False, "truncated": (step + 1) % 200 == 0}
        buffer.add(Batch(obs=observation, act=action, rew=reward, obs_next=following, info={}, **ends))
        if step >= WARM_UP:
            with policy_within_training_step(algorithm.policy):
                algorithm.update(sample_size=BATCH, buffer=buffer)

    return _episodes(act, learn, seed)


def torchrl(is_ours: bool, seed: int) -> list[float]:
    """The same in TorchRL."""
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import SACLoss, SoftUpdate

    from aes_rl.integrations.torchrl import SelectiveSampler, SelectiveWriter, attach

    torch.manual_seed(seed)
    net = MLP(in_features=3, out_features=2, num_cells=HIDDEN, activation_class=nn.ReLU)
    module = TensorDictModule(nn.Sequential(net, NormalParamExtractor()), ["observation"], ["loc", "scale"])
    actor = ProbabilisticActor(module, in_keys=["loc", "scale"], distribution_class=TanhNormal)
    net = MLP(in_features=4, out_features=1, num_cells=HIDDEN, activation_class=nn.ReLU)
    critic = ValueOperator(net, in_keys=["observation", "action"])
    loss = SACLoss(
        actor, critic, loss_function="l2", target_entropy=-1.0, reduction="none", deactivate_vmap=True,
        scalar_output_mode="exclude",
    )  # fmt: skip
    loss.make_value_estimator(gamma=0.99)
    chooser = SelectiveSampler(Uniform(), capacity=STEPS, seed=seed)
    choice = {"sampler": chooser, "writer": SelectiveWriter(chooser)} if is_ours else {}
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(STEPS), batch_size=BATCH, **choice)
    if is_ours:
        attach(loss, chooser)
    target, optimiser = SoftUpdate(loss, eps=0.995), torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE)

    def act(observation: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            given = TensorDict({"observation": torch.from_numpy(observation)[None]}, [1])
            return loss.actor_network.get_dist(given).rsample()[0].numpy()

    def learn(observation: np.ndarray, action: np.ndarray, reward: float, following: np.ndarray, step: int) -> None:
        ends = torch.zeros(1, dtype=torch.bool)
        after = {"observation": torch.from_numpy(following), "reward": torch.tensor([reward]), "done": ends}
        after = TensorDict({**after, "terminated": ends}, [])
        own = {"observation": torch.from_numpy(observation), "action": torch.from_numpy(action), "next": after}
        buffer.add(TensorDict(own, []))
        if step >= WARM_UP:
            losses = loss(buffer.sample())
            optimiser.zero_grad()
            (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).mean().backward()
            optimiser.step()
            target.step()

    return _episodes(act, learn, seed)


def _episodes(act, learn, seed: int) -> list[float]:
    environment, generator = gym.make(TASK), np.random.default_rng(seed)
    observation, _ = environment.reset(seed=seed)
    returns, total = [], 0.0
    for step in range(STEPS):
        action = generator.uniform(-1, 1, 1).astype(np.float32) if step < WARM_UP else act(observation)
        following, reward, _, truncated, _ = environment.step(2 * action)
        learn(observation, action, float(reward), following, step)
        observation, total = following, total + float(reward)
        if truncated:
            returns.append(total)
            total = 0.0
            observation, _ = environment.reset()
    return returns


HOSTS = {"sb3": sb3, "torchrl": torchrl, "tianshou": tianshou}
