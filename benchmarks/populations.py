"""Iterations per second of populations on a GPU, with whichever version of the package is on PYTHONPATH.

    python benchmarks/populations.py LABEL TASK:MEMBERS:BATCH:PRECISION[:SAMPLER] …

such as `new HalfCheetah-v5:60:64:tf32 HalfCheetah-v5:60:64:tf32:predictive`. SAC with one sampler or, by default, with
uniform, prioritized and adaptive members, a million slots each, one update per step; prints one line of JSON per
population, with the median, lowest and highest of seven rounds of 300 steps. Run it with two versions in turns to
compare them. `aes-rl bench gpu` says where the time of one version goes. Results: benchmarks/results/populations.json.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator

import torch

from aes_rl.agents import SAC
from aes_rl.training import loop
from aes_rl.training.config import Training

try:
    from aes_rl.training.state import RunState
except ImportError:  # before version 0.2
    from aes_rl.training.run import Run as RunState

ROUNDS, STEPS = 7, 300


def seconds(steps: Iterator[object], count: int) -> float:
    """Time of some environment steps with their updates."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        next(steps)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measured(label: str, case: str) -> dict[str, object]:
    """The speed of one population, and of its environments alone."""
    task, members, batch, precision, *sampler = case.split(":", 4)
    samplers = tuple(sampler) or ("uniform", "prioritized", "adaptive")
    config = Training(
        task=task, samplers=samplers, seeds=tuple(range(int(members) // len(samplers))), env_steps=10**9,
        capacity=1_000_000, device="cuda", tf32=precision == "tf32",
        sac=SAC(warm_up_steps=1000, batch_size=int(batch)),
    )  # fmt: skip
    run = RunState(config)
    steps = loop.train(run)
    seconds(steps, config.warm_up_steps + 710)  # kernels are compiled, graphs captured, the speed is steady
    rates = [STEPS / seconds(steps, STEPS) for _ in range(ROUNDS)]
    result: dict[str, object] = {
        "version": label, "task": task, "members": int(members), "batch": int(batch), "precision": precision,
        "samplers": samplers,
        "iterations_per_s": statistics.median(rates), "lowest": min(rates), "highest": max(rates),
        "agent_steps_per_s": statistics.median(rates) * int(members),
    }  # fmt: skip
    if hasattr(run.environments, "data"):
        action, start = run.environments.data.action.copy(), time.perf_counter()
        for _ in range(STEPS):
            run.environments.send(action)
            run.environments.receive()
        result["environments_us"] = (time.perf_counter() - start) / STEPS * 1e6
    run.close()
    return result


def main() -> None:
    label, *cases = sys.argv[1:]
    for case in cases:
        print(json.dumps(measured(label, case)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
