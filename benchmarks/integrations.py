"""Time per training step with AES over the library's own buffer, interleaved in one process: make bench-integrations.

SAC on HalfCheetah-v5's sizes, batch 256, two hidden layers of 256, one thread. A step is what the library does between
two environment steps: store one transition, draw, update.
"""

import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from aes_rl import Adaptive

ROUNDS, STEPS, FILLED = 12, 15, 5000
RESULTS = Path(__file__).parent / "results" / "integrations.json"
Step = Callable[[], None]


def rows(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=(count, 1, size)).astype(np.float32) for size in (17, 17, 6)]


def sb3(is_ours: bool) -> Step:
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import configure

    from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

    own = {"replay_buffer_class": SelectiveReplayBuffer, "replay_buffer_kwargs": {"sampler": Adaptive()}}
    model = SAC("MlpPolicy", "HalfCheetah-v5", batch_size=256, seed=0, device="cpu", **(own if is_ours else {}))
    model.set_logger(configure(format_strings=[]))
    if is_ours:
        attach(model)
    stored = iter(zip(*rows(FILLED + 2 * ROUNDS * STEPS), strict=True))

    def add() -> None:
        observation, following, action = next(stored)
        model.replay_buffer.add(observation, following, action.clip(-1, 1), np.ones(1), np.zeros(1, bool), [{}])

    for _ in range(FILLED):
        add()

    def step() -> None:
        add()
        model.train(1, 256)

    return step


HOSTS = {"sb3": (sb3, "stable-baselines3")}


def ratio_of(make: Callable[[bool], Step]) -> tuple[float, float]:
    """Median over rounds of ours over theirs, and milliseconds of theirs."""
    own, theirs = make(True), make(False)
    ratios, base = [], []
    for number in range(ROUNDS + 1):
        seconds = {}
        for name, step in (("own", own), ("theirs", theirs)) if number % 2 else (("theirs", theirs), ("own", own)):
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            seconds[name] = time.perf_counter() - start
        if number:  # the first round warms up
            ratios.append(seconds["own"] / seconds["theirs"])
            base.append(seconds["theirs"] / STEPS * 1e3)
    return statistics.median(ratios), statistics.median(base)


def main() -> None:
    torch.set_num_threads(1)
    gym.logger.min_level = gym.logger.ERROR
    figures: dict[str, object] = {}
    for name, (make, package) in HOSTS.items():
        figures[name], base = ratio_of(make)
        figures[f"{name}_own_buffer_ms"] = base
        figures[f"{name}_version"] = version(package)
    figures["torch"] = version("torch")
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    for name in HOSTS:
        print(f"{name}: {figures[name]:.3f}")


if __name__ == "__main__":
    main()
