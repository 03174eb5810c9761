"""Training speed against Stable-Baselines3: `make bench-train`.

Time per environment step on HalfCheetah-v5 with two hidden layers of 256 units, one update per step and automatic
entropy tuning on both sides. Contestants take turns in short rounds in one process; figures are medians over rounds of
the ratio of two neighbours in time. With one thread, time is CPU time, which other programs disturb less.
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
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach
from aes_rl.training import RunState, Training, train

RESULT = Path(__file__).parent / "results" / "train.json"
WARM_UP = 1000
DEFAULT = 256
"""Stable-Baselines3's own batch size."""
BATCHES = (16, 64, DEFAULT)
SEPARATE = "predictive:networks=separate,forecast=deviation"
"""A draw for each network."""
Steps = Callable[[int], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="turns of every contestant")
    parser.add_argument("--steps", type=int, default=25, help="environment steps per turn")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of torch threads to measure")
    parser.add_argument("--update", action="store_true", help=f"write the figures to {RESULT.name}")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    steps_per_second: dict[str, float] = {}
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        clock = time.thread_time if threads == 1 else time.perf_counter
        times = take_turns(contestants(), arguments.rounds, arguments.steps, clock)
        for name, values in times.items():
            rate = arguments.steps / statistics.median(values)
            steps_per_second[f"{name}, {threads} threads"] = rate
            print(f"{threads} threads  {name:28} {rate:7.1f} steps/s  {1e6 / rate:7.0f} µs per step")
        figures |= ratios(times, "" if threads == 1 else f"_{threads}_threads")
    for name, value in figures.items():
        print(f"{name}: {value:.2f}")
    result = {
        **figures,
        "env_steps_per_s": steps_per_second,
        "rounds": arguments.rounds,
        "steps_per_round": arguments.steps,
        "machine": f"{platform.machine()}, {processor()}",
        "versions": {name: version(name) for name in ("aes-rl", "torch", "stable-baselines3", "gymnasium", "mujoco")},
    }
    if arguments.update:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def contestants() -> dict[str, Steps]:
    """What takes turns: this package by batch size, sampler and members; Stable-Baselines3 by batch size and buffer."""
    own = {f"predictive, batch {size}": ours("predictive", size) for size in BATCHES}
    own |= {f"{name}, batch 256": ours(name, 256) for name in ("uniform", "adaptive")}
    own |= {f"separate, batch {size}": ours(SEPARATE, size) for size in BATCHES[:2]}
    own["predictive, batch 64, 6 members"] = ours("predictive", 64, members=6)
    own |= {f"sb3, batch {size}": peer(size) for size in BATCHES}
    return own | {"sb3, our buffer, batch 64": peer(64, is_selective=True)}


def ratios(times: dict[str, list[float]], suffix: str) -> dict[str, float]:
    """Speed-ups; above 1 this package, or the first named, is faster."""
    figures = {}
    for size in BATCHES:
        own = times[f"predictive, batch {size}"]
        figures[f"speedup_vs_sb3_default_batch_{size}{suffix}"] = median_ratio(times["sb3, batch 256"], own)
        if size != DEFAULT:
            figures[f"speedup_vs_sb3_batch_{size}{suffix}"] = median_ratio(times[f"sb3, batch {size}"], own)
    uniform, adaptive, predictive = (times[f"{name}, batch 256"] for name in ("uniform", "adaptive", "predictive"))
    ours_in_sb3 = times["sb3, our buffer, batch 64"]
    for size in BATCHES[:2]:
        separate = times[f"separate, batch {size}"]
        figures[f"separate_speedup_vs_sb3_default_batch_{size}{suffix}"] = median_ratio(
            times["sb3, batch 256"], separate
        )
        figures[f"separate_over_one_draw_batch_{size}{suffix}"] = median_ratio(
            separate, times[f"predictive, batch {size}"]
        )
    figures[f"our_buffer_in_sb3_over_its_default{suffix}"] = median_ratio(times["sb3, batch 256"], ours_in_sb3)
    figures[f"our_buffer_in_sb3_over_its_own{suffix}"] = median_ratio(times["sb3, batch 64"], ours_in_sb3)
    figures[f"uniform_speedup_vs_sb3{suffix}"] = median_ratio(times["sb3, batch 256"], uniform)
    figures[f"adaptive_over_uniform{suffix}"] = median_ratio(uniform, adaptive)
    figures[f"predictive_over_adaptive{suffix}"] = median_ratio(adaptive, predictive)
    return figures


def take_turns(
    contestants: dict[str, Steps], rounds: int, steps: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of every contestant in every round, after one round of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-1, rounds):
        for name, take in contestants.items():
            start = clock()
            take(steps)
            if turn >= 0:
                times[name].append(clock() - start)
    return times


def ours(sampler: str, batch_size: int, members: int = 1) -> Steps:
    sac = SAC(warm_up_steps=WARM_UP, batch_size=batch_size)
    seeds = tuple(range(members))
    run = RunState(
        Training(
            task="HalfCheetah-v5",
            samplers=(sampler,),
            seeds=seeds,
            env_steps=10**6,
            capacity=100_000,
            workers=0,
            sac=sac,
        )
    )
    loop = train(run)
    for _ in range(WARM_UP):
        next(loop)

    def take(steps: int) -> None:
        for _ in range(steps):
            next(loop)

    return take


def peer(batch_size: int, is_selective: bool = False) -> Steps:
    model = PeerSAC(
        "MlpPolicy",
        "HalfCheetah-v5",
        learning_starts=WARM_UP,
        batch_size=batch_size,
        buffer_size=100_000,
        device="cpu",
        seed=0,
        replay_buffer_class=SelectiveReplayBuffer if is_selective else None,
    )
    if is_selective:
        attach(model)
    model.set_logger(configure(None, []))
    model.learn(WARM_UP)

    def take(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return take


if __name__ == "__main__":
    main()
