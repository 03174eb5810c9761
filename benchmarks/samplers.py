"""What every sampler costs in training: `make bench-samplers`.

CPU time per training step of SAC on HalfCheetah-v5 (one environment step and one update, one torch thread), relative to
uniform replay. Samplers take turns in short rounds in one process; figures are medians over rounds of the ratio of two
neighbours in time.
"""

import argparse
import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import torch
from replay import median_ratio, processor
from train import ours, take_turns

RESULT = Path(__file__).parent / "results" / "samplers.json"
BATCHES = (64, 256)
SAMPLERS = (
    "uniform",
    "prioritized",
    "adaptive",
    "predictive",
    "predictive:forecast=mean-and-last",
    "predictive:networks=balanced",
    "predictive:networks=balanced,forecast=deviation",
    "predictive:networks=separate",
    "predictive:networks=separate,forecast=deviation",
    "predictive:networks=separate,forecast=mean-and-last",
    "last-value",
    "geometric",
    "lap",
    "roer",
    "laber",
    "la3p",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="turns of every sampler")
    parser.add_argument("--steps", type=int, default=20, help="training steps per turn")
    parser.add_argument("--update", action="store_true", help=f"write the figures to {RESULT.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ratios: dict[str, float] = {}
    for batch_size in BATCHES:
        contestants = {name: ours(name, batch_size) for name in SAMPLERS}
        times = take_turns(contestants, arguments.rounds, arguments.steps, time.thread_time)
        for name, values in times.items():
            ratio = ratios[f"{name}, batch {batch_size}"] = median_ratio(values, times["uniform"])
            step = statistics.median(values) / arguments.steps
            print(f"batch {batch_size}  {name:30} {1e6 * step:7.0f} µs per step, {ratio:.3f} of uniform", flush=True)
    result = {
        "cost_over_uniform": ratios,
        "rounds": arguments.rounds,
        "steps_per_round": arguments.steps,
        "machine": f"{platform.machine()}, {processor()}",
        "versions": {name: version(name) for name in ("aes-rl", "torch", "gymnasium", "mujoco")},
    }
    if arguments.update:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
