"""skrl's own update under attachment, against losses weighted by hand."""

import copy

import gymnasium as gym
import pytest
import torch
from skrl.agents.torch.ddpg import DDPG, DDPG_CFG
from skrl.agents.torch.ppo import PPO
from skrl.agents.torch.sac import SAC, SAC_CFG
from skrl.agents.torch.td3 import TD3, TD3_CFG
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from torch import nn

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.skrl import SelectiveMemory, attach
from aes_rl.samplers.geometric import Geometric

OBSERVATION, ACTION = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (2,))
BATCH, ENVS = 16, 3
AGENTS = {SAC: SAC_CFG, TD3: TD3_CFG, DDPG: DDPG_CFG}
SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3),
    "predictive": Predictive(refresh_every=5),
}


def body(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


class Gaussian(GaussianMixin, Model):
    def __init__(self):
        Model.__init__(self, observation_space=OBSERVATION, action_space=ACTION, device="cpu")
        GaussianMixin.__init__(self, clip_actions=False, clip_log_std=True)
        self.net, self.log_std = body(3, 2), nn.Parameter(torch.zeros(2))

    def compute(self, inputs, role):
        del role
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Deterministic(DeterministicMixin, Model):
    def __init__(self, is_critic):
        Model.__init__(self, observation_space=OBSERVATION, action_space=ACTION, device="cpu")
        DeterministicMixin.__init__(self, clip_actions=False)
        self.is_critic, self.net = is_critic, body(5, 1) if is_critic else body(3, 2)

    def compute(self, inputs, role):
        del role
        parts = [inputs["observations"], inputs["taken_actions"]] if self.is_critic else [inputs["observations"]]
        return self.net(torch.cat(parts, dim=1)), {}


def make(kind, sampler, rows=40, **options):
    torch.manual_seed(0)
    names = ["critic", "target_critic"] if kind is DDPG else [f"{t}critic_{i}" for t in ("", "target_") for i in (1, 2)]
    models = {name: Deterministic(True) for name in names}
    models["policy"] = Gaussian() if kind is SAC else Deterministic(False)
    if kind is not SAC:
        models["target_policy"] = Deterministic(False)
    config = AGENTS[kind](batch_size=BATCH, learning_starts=0, random_timesteps=0, **options)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    memory = SelectiveMemory(memory_size=rows, num_envs=ENVS, device="cpu", sampler=SAMPLERS[sampler], seed=0)
    agent = kind(
        models=models, memory=memory, observation_space=OBSERVATION, action_space=ACTION, device="cpu", cfg=config
    )
    agent.init()
    return agent


def step(agent):
    agent.memory.add_samples(
        observations=torch.randn(ENVS, 3),
        actions=torch.randn(ENVS, 2).clamp(-1, 1),
        rewards=3 * torch.randn(ENVS, 1),
        next_observations=torch.randn(ENVS, 3),
        terminated=torch.rand(ENVS, 1) < 0.1,
    )


def train(agent, steps):
    for number in range(steps):
        step(agent)
        agent.update(timestep=number, timesteps=1000)


def unhooked(model):
    """A copy of a model without our hooks."""
    plain = Gaussian() if isinstance(model, Gaussian) else Deterministic(model.is_critic)
    plain.load_state_dict(model.state_dict())
    return plain


def by_hand(terms, parameters, weights):
    """The gradient of the weighted mean of the terms, and the squared norm of the gradient of each."""
    total, norms = [torch.zeros_like(p) for p in parameters], []
    for term, weight in zip(terms, weights, strict=True):
        gradients = torch.autograd.grad(term, parameters, retain_graph=True)
        norms.append(sum(part.square().sum() for part in gradients))
        total = [sum_ + weight * part / len(weights) for sum_, part in zip(total, gradients, strict=True)]
    return total, torch.stack(norms)


def close(found, expected):
    difference = torch.sqrt(sum((a - b).square().sum() for a, b in zip(found, expected, strict=True)))
    return difference <= 1e-4 * torch.sqrt(sum(part.square().sum() for part in expected))


def gradients_of_next_update(agent, names):
    """Where the next update leaves the gradients of the agent's optimizers, before they step."""
    taken = {}

    def keep(name):
        def hook(optimizer, *_):
            taken[name] = [p.grad.clone() for group in optimizer.param_groups for p in group["params"]]

        return hook

    for name in names:
        getattr(agent, f"{name}_optimizer").register_step_pre_hook(keep(name))
    return taken


def last_batch(agent):
    """The batch of the last update, and its columns."""
    names = ["observations", "actions", "rewards", "next_observations", "terminated"]
    (columns,) = agent.memory.sample_by_index(names, indexes=agent.memory.sampling_indexes)
    return agent.memory.selection.pending, *columns


def check_feedback(sampler, pending, errors, critic_norms, actor_norms):
    """The reported norms and TD errors are those computed by hand."""
    if sampler in ("adaptive", "predictive"):
        assert (pending.gradient_norm["critic"] - critic_norms).abs().max() <= 1e-4 * critic_norms.mean()
        assert (pending.gradient_norm["actor"] - actor_norms).abs().max() <= 1e-4 * actor_norms.mean()
    if sampler == "prioritized":
        found = torch.stack(pending.td_errors).mean(dim=0)
        assert (found - torch.stack(errors).abs().mean(dim=0).squeeze(1)).abs().max() <= 1e-5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sac(sampler) -> None:
    """Critics, actor with a free standard deviation, and temperature get the gradients of weighted losses."""
    agent = make(SAC, sampler)
    attach(agent)
    train(agent, 60)
    step(agent)
    old = {name: unhooked(model) for name, model in agent.models.items()}
    temperature = agent._entropy_coefficient.item()
    taken = gradients_of_next_update(agent, ("critic", "policy", "entropy"))
    state = torch.get_rng_state()
    agent.update(timestep=0, timesteps=1000)
    pending, observations, actions, rewards, following, ends = last_batch(agent)
    weights = pending.weights
    torch.set_rng_state(state)
    with torch.no_grad():
        next_actions, outputs = old["policy"].act({"observations": following}, role="policy")
        inputs = {"observations": following, "taken_actions": next_actions}
        values = [old[f"target_critic_{i}"].act(inputs, role="")[0] for i in (1, 2)]
        target = torch.min(*values) - temperature * outputs["log_prob"]
        target = rewards + agent.cfg.discount_factor * ends.logical_not() * target
    inputs = {"observations": observations, "taken_actions": actions}
    errors = [old[f"critic_{i}"].act(inputs, role="")[0] - target for i in (1, 2)]
    terms = sum(error.square() for error in errors).squeeze(1) / 2
    parameters = [p for i in (1, 2) for p in old[f"critic_{i}"].parameters()]
    expected, critic_norms = by_hand(terms, parameters, weights)
    assert close(taken["critic"], expected)
    new_actions, outputs = old["policy"].act({"observations": observations}, role="policy")
    inputs = {"observations": observations, "taken_actions": new_actions}
    values = torch.min(*(unhooked(agent.models[f"critic_{i}"]).act(inputs, role="")[0] for i in (1, 2)))
    terms = (temperature * outputs["log_prob"] - values).squeeze(1)
    expected, _ = by_hand(terms, list(old["policy"].parameters()), weights)
    assert close(taken["policy"], expected)
    _, actor_norms = by_hand(terms, list(old["policy"].net.parameters()), weights)
    surplus = outputs["log_prob"].detach().squeeze(1) + agent._target_entropy
    torch.testing.assert_close(taken["entropy"][0], -(weights * surplus).mean().reshape(1), rtol=1e-4, atol=1e-6)
    agent.memory.selection.settle()
    check_feedback(sampler, pending, errors, critic_norms, actor_norms)
    if sampler in ("adaptive", "prioritized"):
        assert weights.std() > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_deterministic_actors(kind, sampler) -> None:
    """Critics and actor, in TD3's delayed update and in DDPG; probabilities that follow the feedback."""
    agent = make(kind, sampler)
    attachment = attach(agent)
    train(agent, 60 if kind is DDPG or agent._update_counter % 2 else 61)  # TD3's next update trains its actor
    step(agent)
    names = ["critic"] if kind is DDPG else ["critic_1", "critic_2"]
    old = {name: unhooked(model) for name, model in agent.models.items()}
    taken = gradients_of_next_update(agent, ("critic", "policy"))
    agent.update(timestep=0, timesteps=1000)
    pending, observations, actions, rewards, following, ends = last_batch(agent)
    weights = pending.weights
    with torch.no_grad():
        inputs = {"observations": following}
        inputs["taken_actions"] = old["target_policy"].act(inputs, role="")[0].clamp(-1, 1)
        values = torch.stack([old[f"target_{name}"].act(inputs, role="")[0] for name in names]).amin(dim=0)
        target = rewards + agent.cfg.discount_factor * ends.logical_not() * values
    inputs = {"observations": observations, "taken_actions": actions}
    errors = [old[name].act(inputs, role="")[0] - target for name in names]
    parameters = [p for name in names for p in old[name].parameters()]
    expected, critic_norms = by_hand(sum(error.square() for error in errors).squeeze(1), parameters, weights)
    assert close(taken["critic"], expected)
    policy, critic = old["policy"], unhooked(agent.models[names[0]])
    inputs["taken_actions"] = policy.act({"observations": observations}, role="")[0]
    terms = -critic.act(inputs, role="")[0].squeeze(1)
    expected, actor_norms = by_hand(terms, list(policy.parameters()), weights)
    assert close(taken["policy"], expected)
    agent.memory.selection.settle()
    check_feedback(sampler, pending, errors, critic_norms, actor_norms)
    spread = agent.memory.selection.sampler.probabilities().std()
    assert spread == 0 if sampler == "uniform" else spread > 0
    assert attachment.metrics()["effective_sample_size"] > 0


@pytest.mark.parametrize("kind", AGENTS)
def test_a_pass_of_ones_own_is_not_the_losses(kind) -> None:
    """Acting with gradients on as many rows as a batch has; TD3 does not train its actor in every update."""
    runs = []
    for has_own_passes in (False, True):
        agent = make(kind, "adaptive")
        attach(agent)
        for number in range(40):
            train(agent, 1)
            if has_own_passes and number > 20:
                state = torch.get_rng_state()
                inputs = {"observations": torch.ones(BATCH, 3), "taken_actions": torch.zeros(BATCH, 2)}
                for name in ("policy", "critic" if kind is DDPG else "critic_1"):
                    agent.models[name].act(inputs, role="")[0].sum().backward()
                torch.set_rng_state(state)
        agent.memory.selection.settle()
        runs.append([*agent.policy.parameters(), agent.memory.selection.sampler.probabilities()])
    for own, other in zip(*runs, strict=True):
        assert torch.equal(own, other)


def test_weights_need_an_attachment_even_without_feedback(monkeypatch) -> None:
    monkeypatch.setitem(SAMPLERS, "geometric", Geometric(mean_age=20, unbiased=True, floor=0.1))
    with pytest.raises(RuntimeError, match="Geometric got no feedback on the last batch"):
        train(make(SAC, "geometric"), 20)
    agent = make(SAC, "geometric")
    attach(agent)
    train(agent, 20)


def test_a_copy_of_an_attached_model_is_refused() -> None:
    """It would act with the original's parameters."""
    agent = make(SAC, "uniform")
    attachment = attach(agent)
    with pytest.raises(UserError, match=r"detach\(\) before copying"):
        copy.deepcopy(agent.policy)
    attachment.detach()
    copy.deepcopy(agent.policy)


@pytest.mark.parametrize("kind", AGENTS)
def test_detached_skrl_is_itself(kind) -> None:
    """With uniform draws: attached and detached again, and never attached."""
    agents = []
    for is_attached in (True, False):
        agent = make(kind, "uniform")
        if is_attached:
            attach(agent).detach()
        train(agent, 20)
        agents.append(agent)
    for name, model in agents[0].models.items():
        for own, other in zip(model.parameters(), agents[1].models[name].parameters(), strict=True):
            assert torch.equal(own, other)


def test_a_full_memory_holds_the_newest_transitions() -> None:
    memory = SelectiveMemory(memory_size=4, num_envs=2, device="cpu", sampler=Uniform(), seed=0)
    memory.create_tensor("rewards", size=1, dtype=torch.float32)
    for number in range(6):
        memory.add_samples(rewards=torch.tensor([[2.0 * number], [2.0 * number + 1]]), unknown=torch.zeros(2, 1))
    assert len(memory) == 8
    assert sorted(memory.get_tensor_by_name("rewards").flatten().tolist()) == list(range(4, 12))
    (rewards,) = memory.sample(["rewards"], batch_size=500)[0]
    assert set(rewards.flatten().tolist()) == set(range(4, 12))


def test_a_saved_memory_goes_on_with_the_same_draws(tmp_path) -> None:
    agent = make(TD3, "prioritized")
    attach(agent)
    train(agent, 50)
    torch.save(agent.memory.state_dict(), tmp_path / "memory.pt")
    again = make(TD3, "prioritized")
    again.memory.load_state_dict(torch.load(tmp_path / "memory.pt"))
    names, drawn = ["observations", "rewards"], []
    for memory in (agent.memory, again.memory):
        drawn.append(memory.sample(names, batch_size=BATCH)[0])
        memory.selection.discard()
        assert memory.memory_index == 10
        assert memory.filled
    for own, other in zip(*drawn, strict=True):
        assert torch.equal(own, other)


def test_what_is_not_supported_is_refused_with_what_works() -> None:
    agent = make(SAC, "uniform")
    with pytest.raises(UserError, match=r"mini_batches is 2 .*: use 1 and 1"):
        agent.memory.sample(["rewards"], batch_size=4, mini_batches=2)
    with pytest.raises(UserError, match=r"rewards has 2 rows for 3 environments; add one step of all"):
        agent.memory.add_samples(rewards=torch.zeros(2, 1))
    agent.cfg.mixed_precision = True
    with pytest.raises(UserError, match="mixed_precision is on"):
        attach(agent)
    agent.memory = RandomMemory(memory_size=4, device="cpu")
    with pytest.raises(TypeError, match="make the agent with a SelectiveMemory"):
        attach(agent)
    with pytest.raises(TypeError, match="PPO cannot be attached; supported are SAC, TD3, DDPG"):
        attach(PPO.__new__(PPO))


def test_a_batch_that_is_only_looked_at_can_be_dropped() -> None:
    agent = make(SAC, "adaptive")
    attach(agent)
    train(agent, 3)
    agent.memory.sample(agent.memory.get_tensor_names(), batch_size=BATCH)
    agent.memory.discard()
    train(agent, 1)
