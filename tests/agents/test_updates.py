"""One update of each agent against a textbook step: plain layers, one member at a time, torch's own distributions."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from aes_rl import backends
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.agents.sac import exploring_action, policy, squash
from aes_rl.backends import fusing
from aes_rl.streams import Streams
from aes_rl.types import Transition

MEMBERS, BATCH, OBSERVATION, ACTION = 2, 5, 3, 2
CONFIGS = {
    "ddpg": DDPG(hidden=(7, 6)),
    "ddpg, action first": DDPG(hidden=(7, 6), critic_action_layer=0),
    "sac": SAC(hidden=(7, 6), learning_rate=1e-3),
    "sac with value": SAC(hidden=(7, 6), value_function=True, policy_regularization=1e-3, reward_scale=2.0),
    "sac with an epsilon": SAC(hidden=(7, 6), learning_rate=1e-3, squashing_epsilon=0.1),
}
ALL = CONFIGS | {f"{name}, critic first": replace(config, critic_first=True) for name, config in CONFIGS.items()}
"""With those whose actor takes another step than the gradients before the update say."""
EVERYBODY = slice(None)


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def agent_of(name, seeds=(1, 2)):
    agent = make_agent(ALL[name], OBSERVATION, ACTION, Streams(seeds, backends.choose("numba", "cpu")))
    generator = torch.Generator().manual_seed(0)
    # Targets away from the networks, so that a mix-up shows.
    for key, value in agent.state_dict().items():
        if key.startswith("target"):
            value += 0.1 * torch.randn(value.shape, generator=generator)
    return agent


def twin_of(agent, name):
    twin = agent_of(name)
    twin.load_state_dict(agent.state_dict())
    return twin


def trained(agent):
    networks = [getattr(agent, name) for name in ("actor", "critic", "value") if hasattr(agent, name)]
    temperature = [agent.log_temperature] if hasattr(agent, "log_temperature") else []
    return [parameter for network in networks for parameter in network.parameters()] + temperature


def data(agent, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(MEMBERS, BATCH, *shape, generator=generator)

    batch = Transition(
        random(OBSERVATION), torch.tanh(random(ACTION)), random(), random(OBSERVATION), (random() > 0.5).double()
    )
    weights = random().abs() + 0.2
    noise = torch.randn(MEMBERS, agent.noise_size(BATCH), generator=generator)
    return batch, weights, noise


def plain(network, member):
    """The ordinary layers of one member of a perceptron."""
    layers = []
    for layer in network.layers:
        made = nn.Linear(*layer.weight.shape[1:])
        made.weight.data = layer.weight[member].detach().T.clone()
        made.bias.data = layer.bias[member, 0].detach().clone()
        layers += [made, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def textbook_ddpg(agent, member, batch, weights, _noise):
    actor, target_actor = plain(agent.actor, member), plain(agent.target_actor, member)
    critic, target_critic = plain(agent.critic, member), plain(agent.target_critic, member)

    def value(layers, observation, action):
        if agent.config.critic_action_layer == 0:
            return layers(torch.cat([observation, action], -1)).squeeze(-1)
        hidden = torch.relu(layers[0](observation))
        return layers[4](torch.relu(layers[2](torch.cat([hidden, action], -1)))).squeeze(-1)

    with torch.no_grad():
        after = value(target_critic, batch.next_observation, torch.tanh(target_actor(batch.next_observation)))
        target = batch.reward + 0.99 * (1 - batch.terminated) * after
    critic_loss = (weights * (value(critic, batch.observation, batch.action) - target) ** 2).mean()
    actor_loss = (-weights * value(critic, batch.observation, torch.tanh(actor(batch.observation)))).mean()
    return {"critic_loss": (critic_loss, {"critic": critic}), "actor_loss": (actor_loss, {"actor": actor})}


def textbook_sac(agent, member, batch, weights, noise):
    config = agent.config
    actor = plain(agent.actor, member)
    critics = [plain(agent.critic.body, 2 * member + k) for k in range(2)]
    alpha = agent.log_temperature[member].exp().item()
    draws = noise.view(BATCH, -1, ACTION)

    def policy(observation, number):
        mean, log_deviation = actor(observation).chunk(2, -1)
        base = torch.distributions.Normal(mean, log_deviation.exp())
        raw = mean + log_deviation.exp() * draws[:, number]
        action = torch.tanh(raw)
        log_probability = (base.log_prob(raw) - torch.log(1 - action**2 + config.squashing_epsilon)).sum(-1)
        return action, log_probability, (mean**2 + log_deviation**2).mean(-1)

    def value(networks, observation, action):
        pairs = torch.cat([observation, action], -1)
        return torch.stack([network(pairs).squeeze(-1) for network in networks])

    action, log_probability, spread = policy(batch.observation, 0)
    best = value(critics, batch.observation, action).min(0).values
    with torch.no_grad():
        if config.value_function:
            after = plain(agent.target, member)(batch.next_observation).squeeze(-1)
        else:
            targets = [plain(agent.target.body, 2 * member + k) for k in range(2)]
            next_action, next_log_probability, _ = policy(batch.next_observation, 1)
            after = value(targets, batch.next_observation, next_action).min(0).values - alpha * next_log_probability
        target = config.reward_scale * batch.reward + 0.99 * (1 - batch.terminated) * after
    errors = value(critics, batch.observation, batch.action) - target
    losses = {
        "actor_loss": (
            (weights * (alpha * log_probability - best + config.policy_regularization * spread)).mean(),
            {"actor": actor},
        ),
        "critic_loss": (
            (weights * errors**2).mean(-1).sum(),
            {"critic.body.0": critics[0], "critic.body.1": critics[1]},
        ),
    }
    if config.value_function:
        network = plain(agent.value, member)
        wanted = (best - alpha * log_probability).detach()
        loss = (weights * (network(batch.observation).squeeze(-1) - wanted) ** 2).mean()
        losses["value_loss"] = (loss, {"value": network})
    return losses


def gradients_of(agent, name, member):
    """Weight and bias gradients of one member's network, as ordinary layers hold them."""
    number = 2 * member + int(name[-1]) if name.startswith("critic.body") else member
    network = agent.critic if name.startswith("critic") else getattr(agent, name)
    found = []
    for parameter in network.parameters():
        gradient = parameter.grad[number]
        found.append(gradient[0] if gradient.shape[0] == 1 and parameter.shape[1] == 1 else gradient.T)
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_update_is_the_textbook_step(name) -> None:
    agent = agent_of(name)
    batch, weights, noise = data(agent)
    before = copy.deepcopy(agent.state_dict())
    textbook = textbook_ddpg if name.startswith("ddpg") else textbook_sac
    expected = []
    for member in range(MEMBERS):
        own = Transition(*(field[member] for field in batch))
        losses = textbook(agent, member, own, weights[member], noise[member])
        gradients = {
            network_name: torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
            for loss, networks in losses.values()
            for network_name, network in networks.items()
        }
        expected.append(({key: loss for key, (loss, _) in losses.items()}, gradients))
    update = agent.update(batch, weights, noise, EVERYBODY)
    for member, (losses, gradients) in enumerate(expected):
        for key, loss in losses.items():
            assert update.losses[key][member].item() == pytest.approx(loss.item(), rel=1e-10), key
        for network_name, wanted in gradients.items():
            for one, other in zip(gradients_of(agent, network_name, member), wanted, strict=True):
                assert torch.allclose(one, other, rtol=1e-9, atol=1e-12), network_name

    after = agent.state_dict()
    rate = agent.config.target_rate
    pairs = {"target_actor": "actor", "target_critic": "critic"} if name.startswith("ddpg") else {"target": "critic"}
    if name == "sac with value":
        pairs = {"target": "value"}
    for target, source in pairs.items():
        for key in (key for key in after if key.startswith(target + ".")):
            own = key.replace(target, source, 1)
            assert not torch.equal(after[own], before[own])
            assert torch.allclose(after[key], before[key] + rate * (after[own] - before[key]), rtol=1e-12)


@pytest.mark.parametrize("name", ["sac", "sac with value"])
def test_temperature_gradient_is_weighted(name) -> None:
    """d/d log α of −log α · (log π + target): the weighted mean of −(log π − dim A)."""
    agent = agent_of(name)
    batch, weights, noise = data(agent)
    draws = noise.view(MEMBERS, BATCH, -1, ACTION)[:, :, 0]
    _, log_probability = squash(agent.actor(batch.observation), draws, 0.0)
    agent.update(batch, weights, noise, None)
    expected = -(weights * (log_probability.detach() - ACTION)).mean(-1, keepdim=True)
    assert torch.allclose(agent.log_temperature.grad, expected, rtol=1e-10)


def test_sac_policy_has_log_deviations_from_minus_20_to_2() -> None:
    """A higher floor keeps a policy that wants to be certain noisy; −5, which others have, is a deviation of 0.0067."""
    wanted = torch.tensor([-30.0, -20.0, -19.0, -6.0, 1.5, 2.0, 7.0])
    expected = torch.tensor([-20.0, -20.0, -19.0, -6.0, 1.5, 2.0, 2.0])
    head = torch.cat([torch.zeros(7), wanted]).expand(MEMBERS, 14)
    noise = torch.full((MEMBERS, 7), 0.5)
    actions = torch.tanh(0.5 * expected.exp()).expand(MEMBERS, 7)
    assert torch.equal(policy(head)[1], expected.expand(MEMBERS, 7))
    torch.testing.assert_close(exploring_action(head, noise), actions, rtol=1e-12, atol=0)
    found, log_probability = squash(head.unsqueeze(1), noise.unsqueeze(1), 0.0)
    torch.testing.assert_close(found.squeeze(1), actions, rtol=1e-12, atol=0)
    base = torch.distributions.Normal(torch.zeros(7), expected.exp())
    raw = 0.5 * expected.exp()
    by_hand = (base.log_prob(raw) - torch.log1p(-torch.tanh(raw).square())).sum()
    torch.testing.assert_close(log_probability, by_hand.expand(MEMBERS, 1), rtol=1e-9, atol=0)


@pytest.mark.parametrize("metric", ["euclidean", "adam"])
@pytest.mark.parametrize("name", CONFIGS)
def test_norms_equal_the_slow_twin_and_weights_are_undone(name, metric) -> None:
    """In Adam's metric every squared component is multiplied by what Adam would scale it with at the time."""
    agent = agent_of(name)
    agent.norm_metric = metric
    for seed in (1, 2):
        agent.update(*data(agent, seed), None)
    batch, weights, noise = data(agent)
    draws = noise.view(MEMBERS, BATCH, -1)
    reference = twin_of(agent, name)
    scales = {network: [part for layer in layers for part in layer] for network, layers in agent.metric().items()}
    update = agent.update(batch, weights, noise, EVERYBODY)
    # One sample at a time, with weight one: the gradient that the update itself computes.
    for position in range(BATCH):
        alone = twin_of(reference, name)
        single = Transition(*(field[:, position : position + 1] for field in batch))
        alone.update(single, torch.ones(MEMBERS, 1), draws[:, position].contiguous(), None)
        for network in update.signals.gradient_norm:
            squares = sum(
                (parameter.grad.square() * (scale if metric == "adam" else 1)).view(MEMBERS, -1).sum(1)
                for parameter, scale in zip(getattr(alone, network).parameters(), scales[network], strict=True)
            )
            found = update.signals.gradient_norm[network][:, position]
            assert torch.allclose(found, squares, rtol=1e-9), network


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_adams_metric_before_its_first_step(name) -> None:
    """There is no mean square yet: norms are Euclidean, not divided by almost nothing."""
    one, other = agent_of(name), agent_of(name)
    one.norm_metric = "adam"
    torch.testing.assert_close(
        *(agent.update(*data(one), EVERYBODY).signals.gradient_norm for agent in (one, other)), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_weighted_gradient_is_the_weighted_mean_of_single_gradients(name) -> None:
    agent = agent_of(name)
    batch, weights, noise = data(agent)
    draws = noise.view(MEMBERS, BATCH, -1)
    reference = twin_of(agent, name)
    agent.update(batch, weights, noise, None)
    sums = [torch.zeros_like(parameter) for parameter in trained(agent)]
    for position in range(BATCH):
        alone = twin_of(reference, name)
        single = Transition(*(field[:, position : position + 1] for field in batch))
        alone.update(single, torch.ones(MEMBERS, 1), draws[:, position].contiguous(), None)
        for total, parameter in zip(sums, trained(alone), strict=True):
            weight = weights[:, position].repeat_interleave(parameter.shape[0] // MEMBERS)
            total += weight.view(-1, *[1] * (parameter.dim() - 1)) * parameter.grad / BATCH
    for total, parameter in zip(sums, trained(agent), strict=True):
        assert torch.allclose(total, parameter.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_taps_and_unit_weights_change_nothing(name) -> None:
    """Bitwise: the same parameters with and without the signal, and weights of one against no weighting at all."""
    one, other = agent_of(name), agent_of(name)
    batch, _, noise = data(one)
    ones = torch.ones(MEMBERS, BATCH)
    for _ in range(3):
        one.update(batch, ones, noise, EVERYBODY)
        other.update(batch, ones, noise, None)
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


@pytest.mark.parametrize("name", ALL)
def test_td_error_is_the_mean_over_critics(name) -> None:
    agent = agent_of(name)
    batch, weights, noise = data(agent)
    ones = torch.ones_like(weights)
    update = agent.update(batch, ones, noise, EVERYBODY)
    critics = 1 if name.startswith("ddpg") else 2
    # Σ δ² over critics is the loss; with one critic it fixes |δ|, with two it bounds the mean.
    squares = update.losses["critic_loss"] * BATCH
    mean_square = (update.signals.td_error.square().sum(-1) * critics).tolist()
    for found, bound in zip(mean_square, squares.tolist(), strict=True):
        assert found == pytest.approx(bound, rel=1e-9) if critics == 1 else found <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", ALL)
def test_saved_agent_continues(name) -> None:
    agent, restored = agent_of(name), agent_of(name, seeds=(8, 9))
    batch, weights, noise = data(agent)
    agent.update(batch, weights, noise, None)
    restored.load_state_dict({key: value.clone() for key, value in agent.state_dict().items()})
    for seed in range(3):
        batch, weights, noise = data(agent, seed)
        for one in (agent, restored):
            one.update(batch, weights, noise, None)
            one.act(batch.observation[:, 0], noise[:, :ACTION] if not name.startswith("ddpg") else weights[:, :ACTION])
    for key, value in agent.state_dict().items():
        assert torch.equal(value, restored.state_dict()[key]), key


@pytest.mark.parametrize("name", CONFIGS)
def test_the_actor_can_use_the_critic_after_its_step(name) -> None:
    """Signals, losses and all but the actor are of the usual update; it steps on the stepped critic, every time."""
    of_actor = ("actor.", "target_actor.", "actor_optimiser.", "optimiser.mean.0", "optimiser.square.0")
    first, usual, stepped = agent_of(f"{name}, critic first"), agent_of(name), agent_of(name)
    textbook = textbook_ddpg if name.startswith("ddpg") else textbook_sac
    for seed in range(2):
        usual.load_state_dict(first.state_dict())
        stepped.load_state_dict(first.state_dict())
        batch, weights, noise = data(first, seed)
        expected, found = usual.update(batch, weights, noise, EVERYBODY), first.update(batch, weights, noise, EVERYBODY)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        for key, value in usual.state_dict().items():
            if not key.startswith(of_actor):
                assert torch.equal(first.state_dict()[key], value), key

        stepped.critic.load_state_dict(usual.critic.state_dict())
        for member in range(MEMBERS):
            own = Transition(*(field[member] for field in batch))
            loss, networks = textbook(stepped, member, own, weights[member], noise[member])["actor_loss"]
            wanted = torch.autograd.grad(loss, list(networks["actor"].parameters()))
            for one, other in zip(gradients_of(first, "actor", member), wanted, strict=True):
                assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
        stepped.update(batch, weights, noise, None)
        for one, other, before in zip(*(each.actor.parameters() for each in (first, stepped, usual)), strict=True):
            assert torch.equal(one, other)
            assert not torch.equal(one, before)


def test_initial_parameters_depend_on_the_seed_alone() -> None:
    for name in CONFIGS:
        together, alone = agent_of(name, seeds=(5, 6)), agent_of(name, seeds=(6,))
        for one, other in zip(trained(together), trained(alone), strict=True):
            copies = other.shape[0]
            assert torch.equal(one[copies:], other)
            bound = 1 / math.sqrt(one.shape[1]) if one.dim() == 3 and one.shape[1] > 1 else 1.0
            assert float(one.detach().abs().max()) <= bound


def test_ornstein_uhlenbeck_noise_by_hand() -> None:
    agent = agent_of("ddpg")
    observation = torch.zeros(MEMBERS, OBSERVATION)
    base = agent.act_greedily(observation.unsqueeze(1)).squeeze(1)
    first = agent.act(observation, torch.ones(MEMBERS, ACTION))
    second = agent.act(observation, torch.ones(MEMBERS, ACTION))
    assert torch.allclose(first - base, torch.full_like(base, 0.2))
    assert torch.allclose(second - base, torch.full_like(base, 0.2 + 0.85 * 0.2))
    agent.end_episode(torch.tensor([1.0, 0.0]))
    third = agent.act(observation, torch.zeros(MEMBERS, ACTION))
    assert torch.allclose((third - base)[0], torch.zeros(ACTION), atol=1e-12)
    assert torch.allclose((third - base)[1], torch.full((ACTION,), 0.85 * 0.37))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, while it reads a function
@pytest.mark.parametrize("name", CONFIGS)
def test_fused_parts_are_what_they_are_made_of(name, monkeypatch) -> None:
    """What torch.compile makes of the losses, without a GPU: it reads them without a break and gives the same step."""
    agent = agent_of(name)
    twin = twin_of(agent, name)
    batch, weights, noise = data(agent)
    expected = agent.update(batch, weights, noise, EVERYBODY)
    fusing._compiled.cache_clear()
    monkeypatch.setattr(fusing, "has_kernels", lambda _: True)
    monkeypatch.setattr(fusing, "_BACKEND", "aot_eager")
    found = twin.update(batch, weights, noise, EVERYBODY)
    fusing._compiled.cache_clear()
    for key, loss in expected.losses.items():
        assert torch.allclose(found.losses[key], loss, rtol=1e-10)
    for key, norm in expected.signals.gradient_norm.items():
        assert torch.allclose(found.signals.gradient_norm[key], norm, rtol=1e-10)
    for key, value in agent.state_dict().items():
        assert torch.allclose(twin.state_dict()[key], value, rtol=1e-9), key
