"""N-step returns of our buffer against those of Stable-Baselines3."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import NStepReplayBuffer

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

SPACES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)
FIFO = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, overwrite="fifo"),
    "predictive": Predictive(),
}


@pytest.mark.parametrize("steps", [9, 17, 40])
@pytest.mark.parametrize("environments", [1, 2])
def test_returns_are_those_of_the_host(environments, steps, monkeypatch) -> None:
    """Every slot of a partly filled and of a full buffer: ends, time limits, and the newest transition."""
    options = {"device": "cpu", "n_envs": environments, "n_steps": 3, "gamma": 0.9}
    own = SelectiveReplayBuffer(12 * environments, *SPACES, sampler=Uniform(), seed=0, **options)
    host = NStepReplayBuffer(12 * environments, *SPACES, **options)
    generator = np.random.default_rng(0)
    for _ in range(steps):
        rows = generator.normal(size=(2, environments, 2)).astype(np.float32)
        action, reward = generator.integers(3, size=environments), generator.normal(size=environments)
        done, limit = generator.random((2, environments)) < 0.3
        infos = [{"TimeLimit.truncated": bool(a and b)} for a, b in zip(done, limit, strict=True)]
        for buffer in (own, host):
            buffer.add(rows[0], rows[1], action, reward, done, infos)
    slots = np.arange(min(steps, 12) * environments)
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: slots % environments)
    expected, found = host._get_samples(slots // environments), own.rows_at(slots)
    for name in expected._fields:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-6, msg=name)
    assert len(set(found.discounts.flatten().tolist())) == 3


def make(algorithm, sampler, buffer=None, **options):
    return algorithm(
        "MlpPolicy",
        "CartPole-v1" if algorithm is DQN else "Pendulum-v1",
        buffer_size=80,
        learning_starts=40,
        batch_size=16,
        train_freq=1,
        policy_kwargs={"net_arch": [16]},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": sampler, **(buffer or {})},
        seed=0,
        device="cpu",
        **options,
    )


@pytest.mark.parametrize("sampler", FIFO)
def test_errors_are_those_of_the_n_step_target(sampler) -> None:
    model = make(DQN, FIFO[sampler], {"n_steps": 3, "gamma": 0.99})
    attach(model, clips_errors=False)
    model.learn(120)
    network, target = model.policy.make_q_net(), model.policy.make_q_net()
    network.load_state_dict(model.q_net.state_dict())
    target.load_state_dict(model.q_net_target.state_dict())
    model.train(1, 16)
    pending = model.replay_buffer.selection.pending
    model.replay_buffer.selection.settle()
    batch = pending.batch
    assert batch.rewards.max() > 2.9
    with torch.no_grad():
        wanted = batch.rewards + (1 - batch.dones) * batch.discounts * target(batch.next_observations).amax(1, True)
        errors = (wanted - network(batch.observations).gather(1, batch.actions.long())).abs().squeeze(1)
    if sampler == "prioritized":
        assert (pending.td_errors[0] - errors).abs().max() <= 1e-5
    huber = torch.where(errors < 1, errors.square() / 2, errors - 0.5)
    torch.testing.assert_close(pending.critic_terms[0](), huber, rtol=1e-4, atol=1e-5)


def test_sac_trains_on_n_step_returns() -> None:
    model = make(SAC, Predictive(), {"n_steps": 2, "gamma": 0.99})
    attach(model)
    model.learn(120)
    assert model.replay_buffer.selection.sampler.probabilities().std() > 0


def test_other_overwriting_is_refused_with_the_option_to_change() -> None:
    with pytest.raises(UserError, match=r"n_steps is 3, and Adaptive .* use Adaptive\(overwrite=\"fifo\"\)"):
        make(DQN, Adaptive(), {"n_steps": 3})


def test_another_discount_than_the_model_is_refused() -> None:
    with pytest.raises(UserError, match=r"gamma is 0.95 in the model and 0.99 .* 'gamma': 0.95"):
        attach(make(DQN, Uniform(), {"n_steps": 3}, gamma=0.95))
