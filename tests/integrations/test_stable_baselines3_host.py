"""What users of Stable-Baselines3 do around training works as it does with the library's own buffer."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from aes_rl import Prioritized
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

TASKS = {DQN: "CartPole-v1", SAC: "Pendulum-v1"}


def make(kind, env=None, buffer=SelectiveReplayBuffer, **options):
    own = {"sampler": Prioritized(weight_exponent_end=None)} if buffer is SelectiveReplayBuffer else {}
    return kind(
        "MlpPolicy",
        TASKS[kind] if env is None else env,
        buffer_size=300,
        learning_starts=60,
        batch_size=16,
        policy_kwargs={"net_arch": [16]},
        replay_buffer_class=buffer,
        replay_buffer_kwargs=own,
        seed=0,
        device="cpu",
        **{"train_freq": 1, **options},
    )


def trained(model, steps=150, callback=None):
    if isinstance(model.replay_buffer, SelectiveReplayBuffer):
        attach(model)
    model.learn(steps, callback=callback)
    return model


def same(one, other) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    ) and torch.equal(
        one.replay_buffer.selection.sampler.probabilities(), other.replay_buffer.selection.sampler.probabilities()
    )


@pytest.mark.parametrize("kind", TASKS)
def test_callbacks_change_nothing(kind, tmp_path) -> None:
    """Saving the buffer in the middle of a run asks for its state while a batch waits for its feedback."""
    callbacks = [
        CheckpointCallback(25, str(tmp_path), save_replay_buffer=True),
        EvalCallback(gym.make(TASKS[kind]), eval_freq=40, n_eval_episodes=1, verbose=0, warn=False),
    ]
    with_callbacks = trained(make(kind), callback=callbacks)
    assert len(list(tmp_path.glob("*replay_buffer*"))) == 6
    assert same(with_callbacks, trained(make(kind)))


@pytest.mark.parametrize("kind", TASKS)
def test_environments_in_processes(kind) -> None:
    models = []
    for vector in (DummyVecEnv, SubprocVecEnv):
        env = make_vec_env(TASKS[kind], 2, seed=0, vec_env_cls=vector)
        models.append(trained(make(kind, env)))
        env.close()
    assert same(*models)


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_steps": -1},
        {"gradient_steps": -1, "train_freq": (1, "episode")},
        {"gradient_steps": 3, "train_freq": (2, "episode")},
        {"gradient_steps": 2, "train_freq": (5, "step")},
    ],
)
def test_the_number_of_updates_is_the_librarys(options) -> None:
    """Every batch of the run is reported, in every rhythm of training."""
    own, host = trained(make(DQN, **options)), trained(make(DQN, buffer=ReplayBuffer, **options))
    selection = own.replay_buffer.selection
    selection.settle()
    # The policies differ, so episodes do, too; the rhythm in steps is the same.
    if options.get("train_freq", (1, "step"))[1] == "step":
        assert own._n_updates == host._n_updates
    assert selection.updates == selection.draws == own._n_updates > 10


@pytest.mark.parametrize("kind", TASKS)
def test_observations_and_rewards_are_normalised_when_they_are_drawn(kind) -> None:
    """The buffer keeps what the environment showed; a batch is normalised with the statistics of now."""
    env = VecNormalize(make_vec_env(TASKS[kind], 2, seed=0), clip_obs=3.0)
    model = trained(make(kind, env))
    pending = model.replay_buffer.selection.draw(16)
    slots = pending.draw.slots[0].tolist()
    raw, found = model.replay_buffer.rows_at(np.array(slots)), model.replay_buffer.rows_at(np.array(slots), env)
    expected = torch.as_tensor(env.normalize_obs(raw.observations.numpy()))
    torch.testing.assert_close(found.observations, expected)
    rewards = torch.as_tensor(env.normalize_reward(raw.rewards.numpy())).float()
    torch.testing.assert_close(found.rewards, rewards)
    assert not torch.equal(raw.observations, found.observations)
    model.replay_buffer.discard()
