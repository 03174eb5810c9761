"""The agents with the published settings against Tianshou's own, update for update, from the same parameters and draws.

A difference from published curves is then not one of the update, as far as that release and this one agree (2.0.1).
"""

from dataclasses import replace

import gymnasium
import pytest
import torch
from tianshou import algorithm as peers
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from aes_rl import backends
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.streams import Streams
from aes_rl.types import Transition

OBSERVATION, ACTION, BATCH, HIDDEN = 11, 3, 64, (32, 24)
EPSILON = float(torch.finfo(torch.float32).eps)
SHARED = {"critic_first": True, "hidden": HIDDEN, "target_rate": 0.005, "batch_size": BATCH}
CONFIGS = {
    "ddpg": DDPG(
        **SHARED, critic_action_layer=0, actor_learning_rate=1e-3, critic_learning_rate=1e-3, critic_weight_decay=0.0
    ),
    "sac": SAC(
        **SHARED, learning_rate=1e-3, entropy_tuning=False, initial_entropy_coefficient=0.2, squashing_epsilon=EPSILON
    ),
}


def linear(network):
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def layers_of(network, number):
    """Weights and biases of one copy of a perceptron, as ordinary layers hold them."""
    return [(layer.weight[number].T, layer.bias[number, 0]) for layer in network.layers]


def actor_layers(agent):
    layers = layers_of(agent.actor, 0)
    if isinstance(agent.config, DDPG):
        return layers
    weight, bias = layers.pop()  # mean and log standard deviation are a layer each there
    return [*layers, (weight[:ACTION], bias[:ACTION]), (weight[ACTION:], bias[ACTION:])]


def pairs_of(agent, peer):
    """Every layer here and there."""
    if isinstance(agent.config, DDPG):
        ours = {
            "critic": (agent.critic, 0),
            "critic_old": (agent.target_critic, 0),
            "actor_old": (agent.target_actor, 0),
        }
    else:
        critics, targets = agent.critic.body, agent.target.body
        ours = {
            "critic": (critics, 0),
            "critic2": (critics, 1),
            "critic_old": (targets, 0),
            "critic2_old": (targets, 1),
        }
    pairs = list(zip(actor_layers(agent), linear(peer.policy.actor), strict=True))
    for name, (network, number) in ours.items():
        pairs += zip(layers_of(network, number), linear(getattr(peer, name)), strict=True)
    return pairs


def peer_of(agent):
    """Tianshou's agent with the parameters of ours."""

    def body(action=0):
        return Net(state_shape=OBSERVATION, action_shape=action, hidden_sizes=HIDDEN, concat=bool(action))

    def critic():
        return ContinuousCritic(preprocess_net=body(ACTION))

    rate = AdamOptimizerFactory(lr=1e-3)
    space = gymnasium.spaces.Box(-1, 1, (ACTION,))
    shared = {"policy_optim": rate, "critic": critic(), "critic_optim": rate, "tau": 0.005, "gamma": 0.99}
    if isinstance(agent.config, DDPG):
        actor = ContinuousActorDeterministic(preprocess_net=body(), action_shape=ACTION)
        peer = peers.DDPG(policy=ContinuousDeterministicPolicy(actor=actor, action_space=space), **shared)
    else:
        actor = ContinuousActorProbabilistic(
            preprocess_net=body(), action_shape=ACTION, unbounded=True, conditioned_sigma=True
        )
        policy = SACPolicy(actor=actor, action_space=space)
        peer = peers.SAC(policy=policy, critic2=critic(), critic2_optim=rate, alpha=0.2, **shared)
    for (weight, bias), layer in pairs_of(agent, peer):
        layer.weight.data.copy_(weight)
        layer.bias.data.copy_(bias)
    return peer


def buffer_of(batch):
    buffer = ReplayBuffer(BATCH)
    for row in zip(*(field[0].numpy() for field in batch), strict=True):
        observation, action, reward, after, terminated = row
        ended = {"terminated": bool(terminated), "truncated": False, "done": bool(terminated)}
        buffer.add(Batch(obs=observation, act=action, rew=float(reward), obs_next=after, info={}, **ended))
    return buffer


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("scale", [1, 20], ids=["as initialised", "saturated"])
def test_fifty_updates_are_the_peers(name, scale, monkeypatch) -> None:
    """Every parameter, those of the targets included: 4e-7 apart at most when this was written."""
    apart, moved = distances(CONFIGS[name], scale, monkeypatch)
    assert max(apart) < 1e-5 < 1e-3 < min(moved)


def test_the_epsilon_matters_where_actions_saturate(monkeypatch) -> None:
    exact = replace(CONFIGS["sac"], squashing_epsilon=0.0)
    assert max(distances(exact, 1, monkeypatch)[0]) < 1e-5
    assert max(distances(exact, 20, monkeypatch)[0]) > 1e-4


def distances(config, scale, monkeypatch):
    """How far every layer is from the peer's after fifty updates, and how far it went; first means times `scale`."""
    agent = make_agent(config, OBSERVATION, ACTION, Streams((5,), backends.choose("numba", "cpu")))
    agent.actor.layers[-1].weight.data[..., :ACTION] *= scale
    if isinstance(config, DDPG):
        agent.target_actor.load_state_dict(agent.actor.state_dict())
    peer = peer_of(agent)
    generator = torch.Generator().manual_seed(0)
    before = [layer.weight.detach().clone() for _, layer in pairs_of(agent, peer)]
    draws = []
    monkeypatch.setattr(torch.distributions.Normal, "rsample", lambda own, _: own.loc + own.scale * draws.pop(0))
    for _ in range(50):
        random = [torch.randn(1, BATCH, size, generator=generator) for size in (OBSERVATION, ACTION, OBSERVATION)]
        reward, terminated = torch.randn(1, BATCH, generator=generator), torch.rand(1, BATCH, generator=generator) < 0.1
        batch = Transition(random[0], random[1].tanh(), reward, random[2], terminated.float())
        noise = torch.randn(1, agent.noise_size(BATCH), generator=generator)
        agent.update(batch, torch.ones(1, BATCH), noise, None)
        if isinstance(config, SAC):
            own = noise.view(BATCH, 2, ACTION)
            draws += [own[:, 1], own[:, 0]]  # for the next state first
        with policy_within_training_step(peer.policy):
            peer.update(buffer=buffer_of(batch), sample_size=0)
    assert not draws
    pairs = pairs_of(agent, peer)
    apart = [
        (one - other).abs().max() for own, layer in pairs for one, other in zip(own, layer.parameters(), strict=True)
    ]
    return apart, [(layer.weight - old).abs().max() for (_, layer), old in zip(pairs, before, strict=True)]
