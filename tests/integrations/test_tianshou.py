"""Tianshou's own training step under attachment, against losses weighted by hand."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from tianshou.algorithm import DDPG, SAC, TD3
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import (
    ContinuousActorDeterministic,
    ContinuousActorProbabilistic,
    ContinuousCritic,
)

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.gradients import exact
from aes_rl.integrations.tianshou import SelectiveReplayBuffer, SelectiveVectorReplayBuffer, attach
from tests.integrations.copies import copied

SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3),
    "predictive": Predictive(refresh_every=5),
}
BATCH = 32
ADAM = AdamOptimizerFactory(lr=1e-3)


def critic():
    return ContinuousCritic(preprocess_net=Net(state_shape=(3,), action_shape=(1,), hidden_sizes=[16], concat=True))


def make(kind, is_conditioned=True):
    torch.manual_seed(0)
    space = gym.make("Pendulum-v1").action_space
    body = Net(state_shape=(3,), hidden_sizes=[16])
    if kind == "SAC":
        actor = ContinuousActorProbabilistic(
            preprocess_net=body, action_shape=(1,), unbounded=True, conditioned_sigma=is_conditioned
        )
        alpha = AutoAlpha(-1.0, 0.0, ADAM)
        return SAC(
            policy=SACPolicy(actor=actor, action_space=space), policy_optim=ADAM, critic=critic(), critic_optim=ADAM,
            critic2=critic(), critic2_optim=ADAM, alpha=alpha,
        )  # fmt: skip
    actor = ContinuousActorDeterministic(preprocess_net=body, action_shape=(1,))
    policy = ContinuousDeterministicPolicy(actor=actor, action_space=space)
    common = {"policy": policy, "policy_optim": ADAM, "critic": critic(), "critic_optim": ADAM}
    if kind == "DDPG":
        return DDPG(**common)
    return TD3(**common, critic2=critic(), critic2_optim=ADAM, update_actor_freq=1)


def filled(buffer, steps=120, seed=0):
    """Transitions of Pendulum's sizes."""
    generator = np.random.default_rng(seed)
    for step in range(steps):
        observation, following = generator.normal(size=(2, 3)).astype(np.float32)
        buffer.add(
            Batch(
                obs=observation, act=generator.uniform(-1, 1, 1).astype(np.float32), rew=float(generator.normal()),
                terminated=step % 17 == 0, truncated=False, obs_next=following, info={},
            )
        )  # fmt: skip
    return buffer


def update(algorithm, buffer):
    with policy_within_training_step(algorithm.policy):
        algorithm.update(sample_size=BATCH, buffer=buffer)


def trained(kind, sampler, updates=30):
    algorithm = make(kind)
    buffer = filled(SelectiveReplayBuffer(100, sampler=SAMPLERS[sampler]))
    attachment = attach(algorithm, buffer)
    for _ in range(updates):
        update(algorithm, buffer)
    return algorithm, buffer, attachment


def critics_of(algorithm):
    return [getattr(algorithm, name) for name in ("critic", "critic2") if hasattr(algorithm, name)]


def weighted_by_hand(algorithm, batch, weights, target):
    """Gradients of the weighted losses on a copy of the algorithm from before the update, which is updated."""
    found, errors = {}, []
    for name, network in zip(("critic", "critic2"), critics_of(algorithm), strict=False):
        error = network(batch.obs, batch.act).flatten() - target
        network.zero_grad()
        (weights * error.square()).mean().backward()
        found[name] = [p.grad.clone() for p in network.parameters()]
        found[f"{name} norm"] = exact.squared_norms(
            lambda p, o, a, y, network=network: (
                torch.func.functional_call(network, p, (o.unsqueeze(0), a.unsqueeze(0))).squeeze() - y
            ).square(),
            dict(network.named_parameters()), torch.as_tensor(batch.obs), torch.as_tensor(batch.act), target,
        )  # fmt: skip
        errors.append(error.detach().abs())
    found["error"] = torch.stack(errors).mean(dim=0)
    return found


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", ["SAC", "TD3", "DDPG"])
def test_gradients_are_those_of_weighted_losses(kind, sampler) -> None:
    algorithm, buffer, _ = trained(kind, sampler)
    before = unhooked(copied(algorithm))
    seen, gradients = {}, {}
    original = algorithm._update_with_batch

    def remember(batch):
        seen["target"] = batch.returns.flatten().clone()
        seen["batch"], seen["pending"] = batch, buffer.selection.pending
        return original(batch)

    algorithm._update_with_batch = remember
    optimisers = {"critic": algorithm.critic_optim, "actor": algorithm.policy_optim}
    if kind != "DDPG":
        optimisers["critic2"] = algorithm.critic2_optim
    networks = {"critic": algorithm.critic, "actor": algorithm.policy.actor}
    networks |= {"critic2": algorithm.critic2} if kind != "DDPG" else {}
    for name, optimiser in optimisers.items():
        optimiser._optim.register_step_pre_hook(
            lambda *_, name=name: gradients.update({name: [p.grad.clone() for p in networks[name].parameters()]})
        )
    torch.manual_seed(3)
    update(algorithm, buffer)
    weights = seen["pending"].weights
    expected = weighted_by_hand(before, seen["batch"], weights, seen["target"])
    for name in [name for name in gradients if name != "actor"]:
        for own, other in zip(gradients[name], expected[name], strict=True):
            assert (own - other).norm() <= 1e-6 * other.norm() + 1e-12, name
    # The actor's loss is at the critics that the update left.
    for mine, theirs in zip(critics_of(before), critics_of(algorithm), strict=True):
        mine.load_state_dict(theirs.state_dict())
    actor_gradient = actor_by_hand(kind, before, seen["batch"], weights)
    own, other = (torch.cat([part.flatten() for part in side]) for side in (gradients["actor"], actor_gradient))
    assert (own - other).norm() <= 1e-6 * other.norm() + 1e-12
    buffer.selection.settle()
    if sampler in ("adaptive", "predictive"):
        both = sum(expected[f"{name} norm"] for name in gradients if name != "actor")
        torch.testing.assert_close(seen["pending"].gradient_norm["critic"], both, rtol=1e-4, atol=1e-7)
        assert set(seen["pending"].gradient_norm) == {"actor", "critic"}
    if sampler == "prioritized":
        torch.testing.assert_close(
            torch.stack(seen["pending"].td_errors).mean(dim=0), expected["error"], rtol=1e-4, atol=1e-6
        )
    if sampler in ("adaptive", "prioritized"):
        assert weights.std() > 1e-3


def with_a_head(kind):
    """A network whose outputs are all shifted by a layer that the library does not have."""

    class Headed(kind):
        def __init__(self, **options):
            super().__init__(**options)
            self.head = torch.nn.Linear(3, 1)

        def forward(self, observation, *arguments, **options):
            output = super().forward(observation, *arguments, **options)
            shift = self.head(torch.as_tensor(observation))
            if isinstance(output, torch.Tensor):
                return output + shift
            values, hidden = output
            if isinstance(values, tuple):  # a mean and a standard deviation
                return (values[0] + shift, values[1] * shift.exp()), hidden
            return values + shift, hidden

    return Headed


@pytest.mark.parametrize("sampler", ["prioritized", "adaptive"])
@pytest.mark.parametrize("kind", ["SAC", "TD3", "DDPG"])
def test_networks_with_another_head_are_weighted_as_a_whole(kind, sampler, monkeypatch) -> None:
    for own in (ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic):
        monkeypatch.setitem(globals(), own.__name__, with_a_head(own))
    test_gradients_are_those_of_weighted_losses(kind, sampler)


def actor_by_hand(kind, algorithm, batch, weights):
    """With the noise that the update drew: SAC's comes first after the targets', which draws the same number."""
    actor = algorithm.policy.actor
    if kind == "SAC":
        torch.manual_seed(3)
        torch.randn(BATCH, 1)  # the targets' noise
        with policy_within_training_step(algorithm.policy):
            result = algorithm.policy(batch)
        values = torch.min(*(critic(batch.obs, result.act).flatten() for critic in critics_of(algorithm)))
        loss = weights * (algorithm.alpha.value * result.log_prob.flatten() - values)
    else:
        loss = -weights * algorithm.critic(batch.obs, algorithm.policy(batch).act).flatten()
    return torch.autograd.grad(loss.mean(), list(actor.parameters()))


def unhooked(algorithm):
    for module in algorithm.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    if hasattr(algorithm, "alpha"):
        algorithm.alpha.__dict__.pop("update", None)
    return algorithm


def test_the_temperatures_loss_is_weighted() -> None:
    algorithm, buffer, _ = trained("SAC", "adaptive")
    seen = {}
    algorithm.alpha._optim.register_step_pre_hook(
        lambda *_: seen.update(gradient=algorithm.alpha._log_alpha.grad.item())
    )
    pending = buffer.selection.draw(BATCH)
    entropy = torch.randn(BATCH, 1)
    algorithm.alpha.update(entropy)
    expected = -(pending.weights * (-1.0 - entropy.flatten())).mean().item()
    assert seen["gradient"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["SAC", "TD3", "DDPG"])
def test_detached_the_library_is_itself(kind) -> None:
    algorithms = []
    for is_attached in (True, False):
        algorithm = make(kind)
        buffer = filled(SelectiveReplayBuffer(100, sampler=Uniform()))
        if is_attached:
            attach(algorithm, buffer).detach()
        torch.manual_seed(1)
        for _ in range(10):
            update(algorithm, buffer)
        algorithms.append(algorithm)
    for own, other in zip(algorithms[0].parameters(), algorithms[1].parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_vector_buffer_follows_uneven_environments() -> None:
    """One environment is faster than the other, so its part wraps while the other still has room."""
    options = {"total_size": 20, "buffer_num": 2}
    own, host = SelectiveVectorReplayBuffer(**options, sampler=Adaptive(nu=1.0)), VectorReplayBuffer(**options)
    generator = np.random.default_rng(0)
    for step in range(34):
        ids = [0] if step % 4 else [0, 1]
        rows = {"obs": generator.normal(size=(len(ids), 3)), "act": generator.normal(size=(len(ids), 1))}
        ends = {"terminated": np.zeros(len(ids), bool), "truncated": np.zeros(len(ids), bool)}
        batch = Batch(**rows, rew=np.full(len(ids), float(step)), **ends, obs_next=rows["obs"], info=[{}] * len(ids))
        for buffer in (own, host):
            buffer.add(batch, buffer_ids=ids)
        assert len(own.selection) == len(own) == len(host)
    assert np.array_equal(own.rew, host.rew)
    places = np.sort(host.sample_indices(0))
    drawn = np.unique(np.concatenate([drawn_from(own) for _ in range(40)]))
    assert np.array_equal(drawn, places)


def drawn_from(buffer):
    _, indices = buffer.sample(16)
    buffer.discard()
    return indices


def test_a_place_written_again_starts_anew() -> None:
    buffer = filled(SelectiveReplayBuffer(10, sampler=Adaptive(nu=1.0, retention=1.0)), steps=10)
    pending = buffer.selection.draw(16)
    pending.gradient_norm["critic"] = torch.full((16,), 100.0)
    buffer.selection.settle()
    drawn = np.unique(pending.draw.slots[0].numpy())
    before = buffer.selection.sampler.probabilities()[0].clone()
    filled(buffer, steps=10)
    after = buffer.selection.sampler.probabilities()[0]
    assert before.std() > 0
    assert len(drawn) < 10
    assert torch.allclose(after, torch.full_like(after, 0.1))


@pytest.mark.parametrize("sampler", ["adaptive", "prioritized"])
def test_saved_and_loaded_it_goes_on_with_the_same_draws(sampler, tmp_path) -> None:
    """Buffer, by pickle and as HDF5, and algorithm, then five more updates: the same places, the same parameters."""
    algorithm, buffer, attachment = trained("DDPG", sampler)
    attachment.detach()
    filled(buffer, steps=30, seed=4)
    buffer.save_hdf5(str(tmp_path / "buffer.hdf5"))
    torch.save(algorithm.state_dict(), tmp_path / "algorithm.pt")
    buffers = [
        buffer,
        pickle.loads(pickle.dumps(buffer)),
        SelectiveReplayBuffer.load_hdf5(str(tmp_path / "buffer.hdf5")),
    ]
    runs = []
    for own in buffers:
        learner = make("DDPG")
        learner.load_state_dict(torch.load(tmp_path / "algorithm.pt", weights_only=False))
        watcher, places = attach(learner, own), []
        for _ in range(5):
            update(learner, own)
            places.append(own.selection.last.draw.slots[0].tolist())
        watcher.detach()
        runs.append((places, [parameter.detach().clone() for parameter in learner.parameters()]))
    for places, parameters in runs[1:]:
        assert places == runs[0][0]
        for own, other in zip(parameters, runs[0][1], strict=True):
            torch.testing.assert_close(own, other)


@pytest.mark.parametrize("sampler", ["adaptive", "predictive"])
def test_it_trains_with_the_librarys_collector(sampler) -> None:
    environments = DummyVectorEnv([lambda: gym.make("Pendulum-v1") for _ in range(2)])
    algorithm = make("SAC")
    buffer = SelectiveVectorReplayBuffer(400, 2, sampler=SAMPLERS[sampler])
    attach(algorithm, buffer)
    collector = Collector(algorithm, environments, buffer)
    collector.reset()
    collector.collect(n_step=100, random=True)
    for _ in range(30):
        with policy_within_training_step(algorithm.policy):
            collector.collect(n_step=2)
        update(algorithm, buffer)
    buffer.selection.settle()
    assert buffer.selection.sampler.probabilities().std() > 0


@pytest.mark.parametrize(
    ("action", "error", "line"),
    [
        (lambda: attach(make("SAC"), ReplayBuffer(10)), TypeError, "the buffer is a ReplayBuffer"),
        (
            lambda: attach(object(), SelectiveReplayBuffer(10, sampler=Uniform())),
            TypeError,
            "object cannot be attached",
        ),
        (lambda: SelectiveReplayBuffer(10, sampler=Uniform(), stack_num=4), UserError, "stack_num is 4"),
        (
            lambda: attach(make("SAC", is_conditioned=False), SelectiveReplayBuffer(10, sampler=Adaptive())),
            TypeError,
            "conditioned_sigma=True",
        ),
    ],
)
def test_what_is_not_supported_is_refused(action, error, line) -> None:
    with pytest.raises(error, match=line):
        action()


def test_an_unattached_algorithm_says_so() -> None:
    algorithm, buffer = make("SAC"), filled(SelectiveReplayBuffer(100, sampler=Adaptive()))
    update(algorithm, buffer)
    with pytest.raises(RuntimeError, match="got no feedback on the last batch"):
        update(algorithm, buffer)


def test_an_actor_that_cannot_be_watched_leaves_no_hook_behind() -> None:
    algorithm, buffer = make("SAC", is_conditioned=False), SelectiveReplayBuffer(10, sampler=Adaptive())
    for _ in range(2):
        with pytest.raises(TypeError, match="conditioned_sigma=True"):
            attach(algorithm, buffer)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in algorithm.modules())


def test_attaching_twice_is_refused() -> None:
    algorithm, buffer, attachment = trained("DDPG", "adaptive", updates=1)
    with pytest.raises(ValueError, match="already attached"):
        attach(algorithm, buffer)
    attachment.detach()
    attach(algorithm, buffer)


def test_moved_transitions_are_known() -> None:
    own, other = SelectiveReplayBuffer(50, sampler=Adaptive()), filled(ReplayBuffer(50), steps=20)
    own.update(other)
    assert len(own) == len(own.selection) == 20
