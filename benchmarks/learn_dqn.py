"""Learning curves of Stable-Baselines3's DQN with our samplers: make learn-dqn. Hours on one core, not part of CI.

One process, one run after the other; a run whose CSV exists is skipped, so an interrupted series continues with the
next run. `--only cartpole breakout/prioritized` chooses tasks or runs, `--seeds 0 1` seeds. Every row of a CSV is one
evaluation: environment steps, mean return of the greedy test episodes, mean return of the last 100 training episodes,
updates, and seconds since the start of the run. `--table` prints the table of results/dqn/README.md.
"""

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from torch import nn

from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

RESULTS = Path(__file__).parent.parent / "results" / "dqn"
COLUMNS = ("step", "test_return", "training_return", "updates", "seconds")


class MinAtar(gym.Env[np.ndarray, int]):
    """A game of MinAtar with its minimal set of actions; channels as bytes of 0 and 255."""

    def __init__(self, game: str, longest_episode: int = 5000):
        from minatar import Environment

        self._game = Environment(game)
        self._actions = self._game.minimal_action_set()
        self._longest, self._steps = longest_episode, 0
        self.observation_space = gym.spaces.Box(0, 255, tuple(self._game.state_shape()), np.uint8)
        self.action_space = gym.spaces.Discrete(len(self._actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._game.seed(seed)
        self._game.reset()
        self._steps = 0
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward, is_over = self._game.act(self._actions[int(action)])
        self._steps += 1
        return self._frame(), float(reward), bool(is_over), self._steps >= self._longest, {}

    def _frame(self) -> np.ndarray:
        return self._game.state().astype(np.uint8) * 255


class SmallNetwork(BaseFeaturesExtractor):
    """The network of the MinAtar paper: 16 filters of 3 × 3 and a layer of 128."""

    def __init__(self, space: gym.spaces.Box):
        super().__init__(space, 128)
        channels, height, width = space.shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), 128), nn.ReLU(),
        )  # fmt: skip

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


def pong(count: int, seed: int) -> VecEnv:
    import ale_py

    gym.register_envs(ale_py)
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", count, seed=seed), 4)


@dataclass(frozen=True)
class Task:
    """What is trained, for how long, and how it is tested."""

    make: Callable[[int, int], VecEnv]
    """Makes environments from their number and a seed."""
    steps: int
    evaluate_every: int
    episodes: int
    """Test episodes per evaluation, each in an environment of its own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the algorithm."""
    policy: str = "MlpPolicy"


TASKS = {
    # The settings of RL Baselines3 Zoo.
    "cartpole": Task(
        lambda count, seed: make_vec_env("CartPole-v1", count, seed=seed), 50_000, 2500, 10,
        {
            "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
            "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    # The settings of the MinAtar paper, but Adam and an update every fourth step.
    "breakout": Task(
        lambda count, seed: make_vec_env(lambda: MinAtar("breakout"), count, seed=seed), 300_000, 15_000, 10,
        {
            "learning_rate": 2.5e-4, "batch_size": 32, "buffer_size": 100_000, "learning_starts": 5000,
            "target_update_interval": 1000, "train_freq": 4, "exploration_fraction": 0.333,
            "exploration_final_eps": 0.1,
            "policy_kwargs": {"features_extractor_class": SmallNetwork, "net_arch": []},
        },
        "CnnPolicy",
    ),
    # The settings of RL Baselines3 Zoo, but learning starts after 10,000 steps and 20,000 frames are stored.
    "pong": Task(
        pong, 100_000, 10_000, 2,
        {
            "learning_rate": 1e-4, "batch_size": 32, "buffer_size": 20_000, "learning_starts": 10_000,
            "target_update_interval": 1000, "train_freq": 4, "exploration_fraction": 0.1,
            "exploration_final_eps": 0.01,
        },
        "CnnPolicy",
    ),
    # The settings of RL Baselines3 Zoo.
    "lunarlander": Task(
        lambda count, seed: make_vec_env("LunarLander-v3", count, seed=seed), 100_000, 10_000, 10,
        {
            "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 1000,
            "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1, "exploration_fraction": 0.12,
            "exploration_final_eps": 0.1, "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
}  # fmt: skip
SERIES = [
    ("cartpole", ["uniform", "prioritized", "adaptive"], range(10)),
    ("breakout", ["uniform", "prioritized"], range(3)),
    ("pong", ["prioritized"], range(1)),
    ("lunarlander", ["uniform", "prioritized", "adaptive"], range(10)),
    ("cartpole", ["predictive"], range(10)),
    ("breakout", ["predictive"], range(3)),
    ("lunarlander", ["predictive"], range(10)),
]
"""Tasks, samplers and seeds in the order in which they run, all samplers of a seed together."""


class Evaluation(BaseCallback):
    """A row of results every so many steps."""

    def __init__(self, task: Task, seed: int):
        super().__init__()
        self._task, self._seed = task, seed
        self._start = time.perf_counter()
        self.rows: list[tuple[float, ...]] = []

    def _on_step(self) -> bool:
        if self.num_timesteps % self._task.evaluate_every == 0:
            self._evaluate()
        return True

    def _evaluate(self) -> None:
        # The run's own random numbers stay as they are; every evaluation has the same initial states.
        saved = np.random.get_state()  # noqa: NPY002
        with torch.random.fork_rng([]):
            env = self._task.make(self._task.episodes, 10_000 + self._seed)
            mean, _ = evaluate_policy(self.model, env, self._task.episodes, warn=False)
            env.close()
        np.random.set_state(saved)  # noqa: NPY002
        returns = [episode["r"] for episode in self.model.ep_info_buffer or []]
        training = float(np.mean(returns)) if returns else float("nan")
        seconds = time.perf_counter() - self._start
        self.rows.append((self.num_timesteps, mean, training, self.model._n_updates, seconds))


def train(name: str, sampler: str, seed: int) -> list[tuple[float, ...]]:
    """All evaluations of one run."""
    task = TASKS[name]
    model = DQN(
        task.policy, task.make(1, seed), seed=seed, device="cpu", replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": sampler}, **task.options,
    )  # fmt: skip
    attach(model)
    evaluation = Evaluation(task, seed)
    model.learn(task.steps, callback=evaluation)
    model.get_env().close()
    return evaluation.rows


def runs(only: list[str], seeds: list[int] | None) -> Iterator[tuple[str, str, int]]:
    """Task, sampler and seed of every chosen run, in order."""
    for name, samplers, own in SERIES:
        for seed in own:
            for sampler in samplers:
                is_chosen = not only or name in only or f"{name}/{sampler}" in only
                if is_chosen and (seeds is None or seed in seeds):
                    yield name, sampler, seed


def table() -> str:
    """Mean return during training and at its end, with 95 % bootstrap intervals over three seeds or more."""
    returns: dict[tuple[str, str], list[list[float]]] = {}
    for path in sorted(RESULTS.glob("*.csv")):
        name, sampler, _ = path.stem.split("-")
        with path.open(newline="") as file:
            found = [float(row["test_return"]) for row in csv.DictReader(file)]
        returns.setdefault((name, sampler), []).append(found)
    lines = ["| task | sampler | seeds | mean return during training | return at the end |", "|---|---|---|---|---|"]
    order = {(name, sampler): None for name in TASKS for _, samplers, _ in SERIES for sampler in samplers}
    for name, sampler in order:
        if (name, sampler) in returns:
            own = np.array(returns[name, sampler])
            cells = [_interval(own.mean(axis=1)), _interval(own[:, -1])]
            lines.append(f"| {name} | {sampler} | {len(own)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _interval(values: np.ndarray) -> str:
    if len(values) < 3:
        return f"{values.mean():.1f}"
    resampled = np.random.default_rng(0).choice(values, (10_000, len(values))).mean(axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return f"{values.mean():.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="tasks or runs, such as cartpole or breakout/prioritized")
    parser.add_argument("--seeds", nargs="*", type=int, help="all by default")
    parser.add_argument("--table", action="store_true", help="print the table of the finished runs and end")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = list(runs(arguments.only, arguments.seeds))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for number, (name, sampler, seed) in enumerate(chosen, 1):
        path = RESULTS / f"{name}-{sampler}-{seed}.csv"
        if path.exists():
            continue
        print(f"{number}/{len(chosen)} {path.stem} …", end=" ", flush=True)
        rows = train(name, sampler, seed)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        with unfinished.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([f"{x:.5g}" if isinstance(x, float) else x for x in row] for row in rows)
        unfinished.replace(path)
        print(f"test return {rows[-1][1]:.1f}, {rows[-1][4]:.0f} s", flush=True)


if __name__ == "__main__":
    main()
