"""Observations stored once: their content and their size, against the library's own buffer."""

import gc
from types import FunctionType, ModuleType

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

VECTOR, ACTIONS = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)
FRAMES = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
ONCE = {"optimize_memory_usage": True, "handle_timeout_termination": False}
SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(overwrite="fifo"),
    "predictive": Predictive(),
}


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("steps", [5, 12, 13, 40, 100])
@pytest.mark.parametrize("environments", [1, 3])
def test_every_slot_holds_the_same_transition(environments, steps, n_steps) -> None:
    """In a partly filled buffer, and in one that went round several times: the ring is one row longer than a lap."""
    options = {"device": "cpu", "n_envs": environments, "sampler": Uniform(), "seed": 0, "n_steps": n_steps}
    both = SelectiveReplayBuffer(12 * environments, VECTOR, ACTIONS, handle_timeout_termination=False, **options)
    once = SelectiveReplayBuffer(12 * environments, VECTOR, ACTIONS, **ONCE, **options)
    generator = np.random.default_rng(0)
    before = generator.normal(size=(environments, 2)).astype(np.float32)
    for _ in range(steps):
        after, fresh = generator.normal(size=(2, environments, 2)).astype(np.float32)
        action, reward = generator.integers(3, size=environments), generator.normal(size=environments)
        done = generator.random(environments) < 0.2
        for buffer in (both, once):
            buffer.add(before, after, action, reward, done, [{}] * environments)
        before = np.where(done[:, np.newaxis], fresh, after)
    slots = np.arange(min(steps, 12) * environments)
    expected, found = both.rows_at(slots), once.rows_at(slots)
    continues = expected.dones.squeeze(1) == 0  # nothing uses the observation after an end
    for name in expected._fields:
        rows = continues if name == "next_observations" else slice(None)
        own, other = getattr(found, name), getattr(expected, name)
        assert (own is None and other is None) or torch.equal(own[rows], other[rows]), name


@pytest.mark.parametrize("environments", [1, 2])
def test_a_cut_episode_does_not_go_on_with_the_next_ones_observation(environments, tmp_path) -> None:
    """A loaded model resets its environments; the host ends the last episode only with `reset_num_timesteps=True`."""
    options = {"env": make_vec_env("CartPole-v1", environments, seed=0), "buffer_size": 60 * environments}
    model = make(Uniform(), **options)
    attach(model)
    model.learn(40 * environments)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "model", env=make_vec_env("CartPole-v1", environments, seed=9), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    attach(again)
    newest = np.arange(environments) + 39 * environments
    assert not model.replay_buffer.rows_at(newest).dones.any()
    before = again.replay_buffer.dones.copy()
    again.learn(10 * environments, reset_num_timesteps=False)
    assert again.replay_buffer.rows_at(newest).dones.all()
    assert np.array_equal(again.replay_buffer.dones[:39], before[:39])


def test_values_that_do_not_fit_change_nothing() -> None:
    """The sampler would otherwise draw a slot without data."""
    pair = gym.spaces.Dict({"a": VECTOR, "b": VECTOR})
    for space, wrong in [(VECTOR, np.zeros((1, 3))), (pair, {"a": np.zeros((1, 2)), "b": np.zeros((1, 3))})]:
        buffer = SelectiveReplayBuffer(10, space, ACTIONS, "cpu", sampler="uniform", seed=0)
        right = {key: np.zeros((1, 2)) for key in "ab"} if space is pair else np.zeros((1, 2))
        row = np.zeros(1)
        buffer.add(right, right, row, row, row, [{}])
        for values in ((wrong, right, row), (right, wrong, row), (right, right, np.zeros(2))):
            with pytest.raises(ValueError, match="reshape"):
                buffer.add(*values, row, row, [{}])
        assert (buffer.pos, buffer._steps, len(buffer.selection)) == (1, 1, 1)


def size_of(owner) -> int:
    """Bytes of all arrays and tensors that can be reached from an object, each block once."""
    blocks, seen, waiting = {}, set(), [owner]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            blocks[storage.data_ptr()] = max(blocks.get(storage.data_ptr(), 0), storage.nbytes())
        elif isinstance(one, np.ndarray):
            start = one.__array_interface__["data"][0]
            blocks[start] = max(blocks.get(start, 0), one.nbytes)
        waiting += gc.get_referents(one)
    return sum(blocks.values())


@pytest.mark.parametrize("options", [{}, ONCE], ids=["twice", "once"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_frames_cost_what_they_cost_in_the_library(sampler, options) -> None:
    count = 10_000
    host = ReplayBuffer(count, FRAMES, ACTIONS, "cpu", **options)
    own = SelectiveReplayBuffer(count, FRAMES, ACTIONS, "cpu", sampler=SAMPLERS[sampler], seed=0, **options)
    assert size_of(host) >= count * 4 * 84 * 84
    assert size_of(own) / count <= 1.001 * size_of(host) / count + 25


def make(sampler, env="CartPole-v1", buffer_size=60):
    return DQN(
        "MlpPolicy",
        env,
        buffer_size=buffer_size,
        learning_starts=30,
        batch_size=8,
        train_freq=1,
        policy_kwargs={"net_arch": [8]},
        optimize_memory_usage=True,
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": sampler, "handle_timeout_termination": False},
        seed=0,
        device="cpu",
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_it_trains_and_goes_on_after_loading_with_the_same_draws(sampler, tmp_path) -> None:
    model = make(SAMPLERS[sampler])
    attach(model)
    model.learn(100)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "model", env=model.get_env(), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    attach(again)
    batches = []
    for one in (model, again):
        one._setup_learn(10, None, reset_num_timesteps=False)
        one.train(3, 8)
        batches.append(one.replay_buffer.selection.pending.batch)
    for own, other in zip(*batches, strict=True):
        assert own is other is None or torch.equal(own, other)


def test_what_cannot_be_stored_once_is_refused_with_the_option_to_change() -> None:
    with pytest.raises(UserError, match=r'Adaptive .*use Adaptive\(overwrite="fifo"\) or optimize_memory_usage=False'):
        make(Adaptive())
    with pytest.raises(UserError, match="add handle_timeout_termination=False to replay_buffer_kwargs"):
        SelectiveReplayBuffer(10, VECTOR, ACTIONS, optimize_memory_usage=True)
    pair = gym.spaces.Dict({"a": VECTOR, "b": VECTOR})
    with pytest.raises(UserError, match="Dict observations; use optimize_memory_usage=False"):
        SelectiveReplayBuffer(10, pair, ACTIONS, **ONCE)
