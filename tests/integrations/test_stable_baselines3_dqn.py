"""Stable-Baselines3's DQN under attachment, against one gradient per sample computed by hand."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.vec_env import DummyVecEnv
from torch.nn.functional import smooth_l1_loss

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.selection import Selection
from aes_rl.integrations.stable_baselines3 import SelectiveDictReplayBuffer, SelectiveReplayBuffer, attach
from aes_rl.samplers.lap import LAP

SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3),
    "predictive": Predictive(refresh_every=5),
}
BATCH = 16


class Scaled(gym.RewardWrapper):
    """CartPole with rewards of ten, so that many errors exceed one and are clipped by the Huber loss."""

    def reward(self, reward):
        return 10 * reward


class Split(gym.ObservationWrapper):
    """A Dict observation of two parts."""

    def __init__(self, env):
        super().__init__(env)
        part = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gym.spaces.Dict({"cart": part, "pole": part})

    def observation(self, observation):
        return {"cart": observation[:2], "pole": observation[2:]}


def task(is_dict=False):
    env = Scaled(gym.make("CartPole-v1"))
    return Split(env) if is_dict else env


def make(sampler, environments=1, is_dict=False, **options):
    return DQN(
        "MultiInputPolicy" if is_dict else "MlpPolicy",
        DummyVecEnv([lambda: task(is_dict) for _ in range(environments)]),
        buffer_size=300,
        learning_starts=60,
        batch_size=BATCH,
        train_freq=1,
        target_update_interval=50,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [16, 16]},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": SAMPLERS[sampler]},
        seed=0,
        device="cpu",
        **options,
    )


def plain_copy(model, network):
    """The network without our hooks."""
    plain = model.policy.make_q_net()
    plain.load_state_dict(network.state_dict())
    return plain


def by_hand(model, network, batch, weights):
    """The clipped weighted gradient, the squared norm and the error of every sample, one backward pass each."""
    target = plain_copy(model, model.q_net_target)
    parameters = list(network.parameters())
    total, norms, errors = [torch.zeros_like(p) for p in parameters], [], []
    for i in range(len(weights)):
        own = [part if isinstance(part, dict) else part[i : i + 1] for part in batch[:5]]
        own = [{k: v[i : i + 1] for k, v in part.items()} if isinstance(part, dict) else part for part in own]
        observation, action, following, ended, reward = own
        with torch.no_grad():
            wanted = reward + (1 - ended) * model.gamma * target(following).max()
        value = network(observation).gather(1, action.long())
        gradients = torch.autograd.grad(smooth_l1_loss(value, wanted), parameters)
        norms.append(sum(gradient.square().sum() for gradient in gradients))
        errors.append((value - wanted).abs().item())
        total = [sum_ + weights[i] * gradient / len(weights) for sum_, gradient in zip(total, gradients, strict=True)]
    norm = torch.sqrt(sum(part.square().sum() for part in total))
    clip = min(1.0, model.max_grad_norm / (norm.item() + 1e-6))
    return [clip * part for part in total], torch.stack(norms), torch.tensor(errors), clip


def one_update(model):
    """What one call of `train` did: the gradients that the optimizer took, and the batch with its feedback."""
    taken = []
    handle = model.policy.optimizer.register_step_pre_hook(
        lambda *_: taken.append([p.grad.clone() for p in model.q_net.parameters()])
    )
    model.train(1, BATCH)
    handle.remove()
    return taken[0], model.replay_buffer.selection.pending


@pytest.mark.parametrize("clips_errors", [True, False])
@pytest.mark.parametrize(
    ("environments", "is_dict", "max_grad_norm"), [(1, False, 1e9), (3, False, 0.5), (2, True, 0.5)]
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_update_is_that_of_the_weighted_loss(sampler, environments, is_dict, max_grad_norm, clips_errors) -> None:
    """The gradient clip acts on the weighted gradient; norms and errors are those before it and without weights."""
    model = make(sampler, environments, is_dict, max_grad_norm=max_grad_norm)
    attach(model, clips_errors=clips_errors)
    model.learn(200)
    network = plain_copy(model, model.q_net)
    found, pending = one_update(model)
    weights = pending.weights
    expected, norms, errors, clip = by_hand(model, network, pending.batch, weights)
    assert (clip < 1) == (max_grad_norm < 1)
    difference = torch.sqrt(sum((own - other).square().sum() for own, other in zip(found, expected, strict=True)))
    assert difference <= 1e-4 * torch.sqrt(sum(other.square().sum() for other in expected))
    model.replay_buffer.selection.settle()
    assert (errors > 1).any()
    if sampler in ("adaptive", "predictive"):
        assert set(pending.gradient_norm) == {"critic"}
        assert (pending.gradient_norm["critic"] - norms).abs().max() <= 1e-4 * norms.mean()
    if sampler == "prioritized":
        (own,) = pending.td_errors
        assert (own - (errors.clamp(max=1) if clips_errors else errors)).abs().max() <= 1e-5
    if sampler in ("adaptive", "prioritized") and not (sampler == "prioritized" and clips_errors):
        assert weights.std() > 1e-3
    (terms,) = [compute() for compute in pending.critic_terms]
    huber = torch.where(errors < 1, errors.square() / 2, errors - 0.5)
    torch.testing.assert_close(terms, huber, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_dict", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_saved_and_loaded_it_goes_on_with_the_same_draws(sampler, is_dict, tmp_path) -> None:
    """The buffer is full by then."""
    model = make(sampler, 2, is_dict)
    attach(model)
    model.learn(400)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    env = DummyVecEnv([lambda: task(is_dict) for _ in range(2)])
    again = DQN.load(tmp_path / "model", env=env, device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    assert isinstance(again.replay_buffer, SelectiveDictReplayBuffer) == is_dict
    attach(again)
    runs = []
    for one in (model, again):
        one._setup_learn(10, None)
        slots = []
        for _ in range(5):
            _, pending = one_update(one)
            slots.append(pending.draw.slots[0].tolist())
        runs.append((slots, [p.detach().clone() for p in one.q_net.parameters()]))
    assert runs[0][0] == runs[1][0]
    for own, other in zip(runs[0][1], runs[1][1], strict=True):
        assert torch.equal(own, other)


def test_weights_of_one_and_detaching_change_nothing() -> None:
    models = []
    for mode in ("attached", "detached", "never"):
        model = make("uniform")
        if mode != "never":
            attachment = attach(model)
        if mode == "detached":
            attachment.detach()
        model.learn(150)
        models.append(list(model.q_net.parameters()))
    for attached, detached, never in zip(*models, strict=True):
        torch.testing.assert_close(attached, never, rtol=1e-5, atol=1e-7)
        assert torch.equal(detached, never)


def test_the_captured_fraction_is_measured_and_changes_nothing() -> None:
    models = []
    for measure_every in (None, 20):
        model = make("predictive")
        attachment = attach(model, measure_every)
        model.learn(150)
        metrics = attachment.metrics()
        assert ("captured_fraction_critic" in metrics) == (measure_every is not None)
        models.append(list(model.q_net.parameters()))
    for own, other in zip(*models, strict=True):
        assert torch.equal(own, other)


def test_clips_errors_is_refused_where_the_loss_clips_nothing() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", device="cpu", replay_buffer_class=SelectiveReplayBuffer, buffer_size=100)
    with pytest.raises(UserError, match=r"clips_errors is True, and the loss of SAC .*; omit clips_errors"):
        attach(model, clips_errors=True)


def test_lap_with_clipped_errors_is_refused(monkeypatch) -> None:
    """No clipped error exceeds LAP's smallest error, so that every slot would have the same probability."""
    monkeypatch.setitem(SAMPLERS, "lap", LAP())
    with pytest.raises(UserError, match=r"smallest_error is 1, .* use attach\(model, clips_errors=False\)"):
        attach(make("lap"))
    model = make("lap")
    attach(model, clips_errors=False)
    model.learn(120)
    assert model.replay_buffer.selection.sampler.probabilities().std() > 0
    monkeypatch.setitem(SAMPLERS, "lap", LAP(smallest_error=0.1))
    attach(make("lap"))


@pytest.mark.parametrize("sampler", ["laber", "la3p"])
def test_what_an_error_recommends_works(sampler) -> None:
    """Also where errors are clipped, and in hosts that do not know the length of the run."""
    with pytest.raises(UserError, match=r"use Prioritized\(weight_exponent_end=None\)"):
        Selection(sampler, 100, 0)
    attach(make("prioritized"))
    assert SAMPLERS["prioritized"] == Prioritized(weight_exponent_end=None)
    Selection(SAMPLERS["prioritized"], 100, 0)


class Frames(gym.Env):
    """Random images of 36 × 36 pixels, the smallest that the library's convolutions accept."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self.frame(), {}

    def step(self, action):
        self.steps += 1
        return self.frame(), 4.0 * (action == self.steps % 3), self.steps == 10, False, {}

    def frame(self):
        return self.np_random.integers(0, 256, (36, 36, 1), dtype=np.uint8)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_images(sampler) -> None:
    """Every parameter gets the weighted gradient; norms are those of the linear layers; frames stay bytes."""
    model = DQN(
        "CnnPolicy",
        Frames(),
        buffer_size=60,
        learning_starts=20,
        train_freq=1,
        batch_size=BATCH,
        max_grad_norm=0.01,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 16}},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": SAMPLERS[sampler]},
        seed=0,
        device="cpu",
    )
    attach(model)
    model.learn(40)
    network = plain_copy(model, model.q_net)
    found, pending = one_update(model)
    assert pending.batch.observations.dtype == torch.uint8
    assert model.replay_buffer.observations.dtype == np.uint8
    expected, _, errors, clip = by_hand(model, network, pending.batch, pending.weights)
    assert clip < 1
    difference = torch.sqrt(sum((own - other).square().sum() for own, other in zip(found, expected, strict=True)))
    assert difference <= 1e-4 * torch.sqrt(sum(other.square().sum() for other in expected))
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("cnn" not in name)
    _, norms, _, _ = by_hand(model, linear_only(network), pending.batch, pending.weights)
    model.replay_buffer.selection.settle()
    if sampler in ("adaptive", "predictive"):
        assert (pending.gradient_norm["critic"] - norms).abs().max() <= 1e-4 * norms.mean()
    if sampler == "prioritized":
        assert (pending.td_errors[0] - errors.clamp(max=1)).abs().max() <= 1e-5


def linear_only(network):
    """The network, listing only the parameters that are trained."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    vars(network)["parameters"] = lambda: trained
    return network
