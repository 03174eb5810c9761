"""Training steps and test episodes with fewer cores than processes: python benchmarks/waiting.py [rounds].

The learner is a pause of 0.3 ms, as if a GPU worked; environments and evaluation are real. To compare with another
commit, check it out beside this one and run this file with its src on PYTHONPATH, in alternation.
"""

import sys
import time
from typing import Any

import numpy as np

from aes_rl.agents import SAC, make_agent
from aes_rl.backends import choose
from aes_rl.streams import Streams
from aes_rl.training.episode_worker import SchedulingPriority
from aes_rl.training.evaluation import Evaluator
from aes_rl.training.vector.environments import Environments

TASK, MEMBERS, EPISODES, SECONDS, PAUSE = "HalfCheetah-v5", 4, 2, 6.0, 0.0003
CASES = {
    "1 environment and 2 evaluation workers": (1, 2, "normal"),
    "1 environment and 2 evaluation workers at niceness 10": (1, 2, "nice"),
    "1 environment and 2 evaluation workers in the idle class": (1, 2, "idle"),
    "1 environment worker alone": (1, 0, "normal"),
    "no environment and 2 evaluation workers": (0, 2, "normal"),
    "no environment and 2 evaluation workers at niceness 10": (0, 2, "nice"),
    "no environment and 2 evaluation workers in the idle class": (0, 2, "idle"),
    "no worker": (0, 0, "normal"),
}


def measure(workers: int, evaluation_workers: int, priority: SchedulingPriority) -> tuple[float, float]:
    """Training steps per member, and steps of test episodes, per second."""
    environments = Environments(TASK, list(range(MEMBERS)), workers)
    sizes = environments.data.observation.shape[1], environments.data.action.shape[1]
    agent = make_agent(SAC(), *sizes, Streams(list(range(MEMBERS)), choose("torch", "cpu")))
    evaluator = Evaluator(TASK, MEMBERS, EPISODES, evaluation_workers, priority) if evaluation_workers else None
    seeds = np.arange(MEMBERS * EPISODES).reshape(MEMBERS, EPISODES).tolist()
    actions = np.random.default_rng(0).uniform(-1, 1, (100, MEMBERS, sizes[1])).astype(np.float32)
    if evaluator is not None:
        evaluator.start(agent, seeds)
    trained = played = 0
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        environments.send(actions[trained % 100])
        time.sleep(PAUSE)
        environments.receive()
        trained += 1
        if evaluator is not None and trained % 50 == 0 and evaluator.is_done():
            played += int(evaluator.finish().lengths.sum())
            evaluator.start(agent, seeds)
    environments.close()
    if evaluator is not None:
        evaluator.close()
    return trained / SECONDS, played / SECONDS


def main(rounds: int) -> None:
    """Print every round; the cases alternate."""
    found: dict[str, list[Any]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, case in CASES.items():
            found[name].append(measure(*case))
    for name, pairs in found.items():
        steps, tests = (" · ".join(f"{value:,.0f}" for value in values) for values in zip(*pairs, strict=True))
        print(f"{name}: training {steps}; test episodes {tests}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
