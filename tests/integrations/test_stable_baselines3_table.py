"""The table of algorithms and policies on the page about Stable-Baselines3: every cell is tried."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch

from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "stable_baselines3.md"
HEAD, *ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", PAGE.read_text().split("## Supported")[1], re.MULTILINE)
    if not line.startswith("|-")
]
CELLS = [(row[0], policy, cell) for row in ROWS for policy, cell in zip(HEAD[1:], row[1:], strict=True)]
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
    assert {algorithm for algorithm, _, _ in CELLS} >= {"DQN", "SAC", "TD3", "DDPG", "PPO"}
    assert set(HEAD[1:]) == set(SPACES)


@pytest.mark.parametrize(("algorithm", "policy", "cell"), CELLS)
def test_a_cell_is_true(algorithm, policy, cell) -> None:
    """Where it says that it works, training changes the sampler's probabilities and all trained parameters."""
    kind, env = getattr(stable_baselines3, algorithm), Noise(SPACES[policy], algorithm == "DQN")
    if cell.startswith("rejected: "):
        with pytest.raises(TypeError, match=f"{algorithm} cannot be attached"):
            attach(kind(policy, env, policy_kwargs=dict(SMALL[policy]), n_steps=8, batch_size=8, device="cpu"))
        return
    assert cell == "works"
    model = kind(
        policy,
        env,
        buffer_size=40,
        learning_starts=12,
        batch_size=8,
        train_freq=1,
        policy_kwargs=dict(SMALL[policy]),
        replay_buffer_class=SelectiveReplayBuffer,
        seed=0,
        device="cpu",
    )
    attachment = attach(model, measure_every=10)
    before = {name: value.clone() for name, value in model.policy.named_parameters() if "target" not in name}
    model.learn(30)
    assert "captured_fraction" in attachment.metrics()
    assert model.replay_buffer.selection.sampler.probabilities().std() > 0
    changed = [
        not torch.equal(before[name], value) for name, value in model.policy.named_parameters() if name in before
    ]
    assert all(changed)
