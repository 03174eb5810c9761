"""Training speed against Stable-Baselines3: `make bench-train`.

Environment steps a second on HalfCheetah-v5, batch 256, two hidden layers of 256, one update a step, automatic entropy
tuning on both sides. Contestants take turns in short rounds in one process; figures are medians over rounds of the
ratio of two neighbours in time.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from replay import median_ratio, processor
from stable_baselines3 import SAC as PeerSAC
from stable_baselines3.common.logger import configure

from aes_rl.agents import SAC
from aes_rl.training import RunState, Training, train

RESULT = Path(__file__).parent / "results" / "train.json"
WARM_UP = 1000
Steps = Callable[[int], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="turns of every contestant")
    parser.add_argument("--steps", type=int, default=50, help="environment steps a turn")
    parser.add_argument("--update", action="store_true", help="write the result to benchmarks/results")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for threads, key in ((1, "speedup_vs_sb3_1_thread"), (2, "speedup_vs_sb3_2_threads")):
        torch.set_num_threads(threads)
        contestants = {name: ours(name) for name in ("uniform", "adaptive", "predictive")} | {"sb3": peer()}
        times = take_turns(contestants, arguments.rounds, arguments.steps)
        figures[key] = median_ratio(times["sb3"], times["uniform"])
        figures[f"adaptive_over_uniform_{threads}"] = median_ratio(times["uniform"], times["adaptive"])
        figures[f"predictive_over_adaptive_{threads}"] = median_ratio(times["adaptive"], times["predictive"])
        for name, values in times.items():
            seconds[f"{name}, {threads} threads"] = statistics.median(values)
            print(f"{name:10} {threads} threads: {arguments.steps / statistics.median(values):6.1f} env steps/s")
    dearest = min(figures["predictive_over_adaptive_1"], figures["predictive_over_adaptive_2"])
    print(f"predictive_over_adaptive: {dearest:.2f}")
    result: dict[str, object] = {
        "speedup_vs_sb3_1_thread": figures["speedup_vs_sb3_1_thread"],
        "speedup_vs_sb3_2_threads": figures["speedup_vs_sb3_2_threads"],
        "adaptive_over_uniform": min(figures["adaptive_over_uniform_1"], figures["adaptive_over_uniform_2"]),
    }
    for name, value in result.items():
        print(f"{name}: {value:.2f}")
    result |= {
        "predictive_over_adaptive": dearest,
        "env_steps_per_s": {name: arguments.steps / value for name, value in seconds.items()},
        "rounds": arguments.rounds,
        "steps_a_round": arguments.steps,
        "machine": f"{platform.machine()}, {processor()}",
        "versions": {name: version(name) for name in ("aes-rl", "torch", "stable-baselines3", "gymnasium", "mujoco")},
    }
    if arguments.update:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def take_turns(contestants: dict[str, Steps], rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round, after one round of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-1, rounds):
        for name, take in contestants.items():
            start = time.perf_counter()
            take(steps)
            if turn >= 0:
                times[name].append(time.perf_counter() - start)
    return times


def ours(sampler: str) -> Steps:
    sac = SAC(warm_up_steps=WARM_UP)
    run = RunState(
        Training(task="HalfCheetah-v5", samplers=(sampler,), seeds=(0,), env_steps=10**6, workers=0, sac=sac)
    )
    loop = train(run)
    for _ in range(WARM_UP):
        next(loop)

    def take(steps: int) -> None:
        for _ in range(steps):
            next(loop)

    return take


def peer() -> Steps:
    model = PeerSAC("MlpPolicy", "HalfCheetah-v5", learning_starts=WARM_UP, batch_size=256, device="cpu", seed=0)
    model.set_logger(configure(None, []))
    model.learn(WARM_UP)

    def take(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return take


if __name__ == "__main__":
    main()
