"""The table of algorithms, policies and options on the page about Stable-Baselines3: every cell is tried."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch

from aes_rl import Adaptive, Predictive
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "stable_baselines3.md"
HEAD, *ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", PAGE.read_text().split("## Supported")[1], re.MULTILINE)
    if not line.startswith("|-")
]
CELLS = [(row[0], column, cell) for row in ROWS for column, cell in zip(HEAD[1:], row[1:], strict=True)]
IMAGE, VECTOR = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8), gym.spaces.Box(-1, 1, (3,), np.float32)
SPACES = {
    "MlpPolicy": VECTOR,
    "CnnPolicy": IMAGE,
    "MultiInputPolicy": gym.spaces.Dict({"image": IMAGE, "vector": VECTOR}),
}
SMALL = {
    "MlpPolicy": {"net_arch": [8]},
    "CnnPolicy": {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8}},
    "MultiInputPolicy": {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}},
}
OPTIONS = {
    "n_steps": {"replay_buffer_kwargs": {"n_steps": 2, "gamma": 0.99}},
    "optimize_memory_usage": {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    },
    "use_sde": {"use_sde": True},
}
ERRORS = {"no replay buffer": "PPO cannot be attached", "BatchNorm": "its BatchNorm", "no closed form": "use_sde=False"}


class Noise(gym.Env):
    """Random observations and rewards."""

    def __init__(self, observations, is_discrete):
        self.observation_space = observations
        self.action_space = gym.spaces.Discrete(2) if is_discrete else gym.spaces.Box(-1, 1, (1,), np.float32)
        self.steps = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        del action
        self.steps += 1
        return self.observation_space.sample(), float(self.np_random.normal()), self.steps % 7 == 0, False, {}


def test_the_table_was_found() -> None:
    assert {algorithm for algorithm, _, _ in CELLS} == {"DQN", "QRDQN", "SAC", "TQC", "TD3", "DDPG", "CrossQ", "PPO"}
    assert set(HEAD[1:]) == {*SPACES, *OPTIONS}


def make(algorithm, column, sampler):
    """A small model with the policy or the option of a column."""
    kind = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    policy = column if column in SPACES else "MlpPolicy"
    options = {key: dict(own) if isinstance(own, dict) else own for key, own in OPTIONS.get(column, {}).items()}
    if algorithm == "PPO":
        options.pop("replay_buffer_kwargs", None)
        options |= {"n_steps": 8}
    else:
        options |= {"replay_buffer_class": SelectiveReplayBuffer, "buffer_size": 40, "learning_starts": 12}
        options["replay_buffer_kwargs"] = {"sampler": sampler, **options.get("replay_buffer_kwargs", {})}
        options["train_freq"] = 1
    env = Noise(SPACES[policy], algorithm in ("DQN", "QRDQN"))
    return kind(policy, env, batch_size=8, policy_kwargs=dict(SMALL[policy]), seed=0, device="cpu", **options)


@pytest.mark.parametrize(("algorithm", "column", "cell"), CELLS)
def test_a_cell_is_true(algorithm, column, cell) -> None:
    """Where it says that it works, training changes the sampler's probabilities and all trained parameters."""
    if cell == "not in the library":
        missing = f"unexpected keyword argument '{column}'|Policy {column} unknown"
        with pytest.raises((TypeError, ValueError), match=missing):
            make(algorithm, column, Predictive())
        return
    if cell.startswith("rejected: "):
        model = make(algorithm, column, Predictive())
        with pytest.raises((TypeError, UserError), match=ERRORS[cell.removeprefix("rejected: ")]):
            attach(model)
        return
    assert cell == ("works" if column in SPACES else "works with FIFO overwriting")
    if column in OPTIONS:
        with pytest.raises(UserError, match=r'use Adaptive\(overwrite="fifo"\)'):
            make(algorithm, column, Adaptive())
    model = make(algorithm, column, Predictive())
    attachment = attach(model, measure_every=10)
    before = {name: value.clone() for name, value in model.policy.named_parameters() if "target" not in name}
    model.learn(30)
    assert "captured_fraction" in attachment.metrics()
    assert model.replay_buffer.selection.sampler.probabilities().std() > 0
    changed = [
        not torch.equal(before[name], value) for name, value in model.policy.named_parameters() if name in before
    ]
    assert all(changed)
