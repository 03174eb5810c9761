"""How long until a score, by a real clock: Stable-Baselines3's default SAC, and ours with selection and small batches.

    python benchmarks/time_to_score.py RESULTS.csv --goal 2000     an hour or two on two cores
    python benchmarks/time_to_score.py RESULTS.csv --goal 2000 --table

The contestants of a seed train one or two at a time, each in a process with one thread, until the mean of five
evaluations reaches the goal or the steps are used up. Test episodes stop a contestant's clock. CPU time is recorded
beside the clock's: on a machine with other work it says what the clock would show without that work. A contestant's
evaluations are appended to the file when it has ended; those that are in the file already are not run again.
"""

import argparse
import csv
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import gymnasium
import numpy as np
import torch
from race import SMOOTHED, reached, read
from stable_baselines3 import SAC as PeerSAC
from stable_baselines3.common.logger import configure

from aes_rl.agents import SAC
from aes_rl.training import RunState, Training, train
from aes_rl.training.vector import simulator

EVERY, EPISODES = 10_000, 5
"""Steps between evaluations, and test episodes of each."""
FIELDS = ("task", "contestant", "seed", "env_step", "minutes", "cpu_minutes", "mean_return")
BEST = "predictive:networks=separate,forecast=deviation"
Policy = Callable[[np.ndarray], np.ndarray]


def peer(task: str, seed: int, steps: int) -> Iterator[Policy]:
    """Stable-Baselines3's SAC with its defaults."""
    model = PeerSAC("MlpPolicy", task, seed=seed, device="cpu", buffer_size=steps)
    model.set_logger(configure(None, []))
    while True:
        model.learn(EVERY, reset_num_timesteps=False)
        yield lambda observation: model.predict(observation, deterministic=True)[0]


def ours(task: str, seed: int, steps: int, batch_size: int, sampler: str) -> Iterator[Policy]:
    """This package's SAC with its defaults but the batch size."""
    config = Training(
        task=task,
        samplers=(sampler,),
        seeds=(seed,),
        env_steps=steps,
        capacity=steps,
        workers=0,
        sac=SAC(batch_size=batch_size),
    )
    run = RunState(config)
    middle, half = simulator.action_scale(simulator.make(task))

    def play(observation: np.ndarray) -> np.ndarray:
        inputs = torch.as_tensor(observation, dtype=torch.float32).view(1, 1, -1)
        return middle + half * run.agent.act_greedily(inputs).view(-1).numpy()

    for step in train(run):
        if step.env_step % EVERY == 0:
            yield play
    run.close()


CONTESTANTS: dict[str, Callable[[str, int, int], Iterator[Policy]]] = {
    "Stable-Baselines3, default": peer,
    "aes-rl, uniform, batch 256": lambda task, seed, steps: ours(task, seed, steps, 256, "uniform"),
    "aes-rl, a draw for each network, batch 64": lambda task, seed, steps: ours(task, seed, steps, 64, BEST),
    "aes-rl, a draw for each network, batch 16": lambda task, seed, steps: ours(task, seed, steps, 16, BEST),
}


def compete(path: Path, lock: object, name: str, task: str, seed: int, steps: int, goal: float) -> None:
    """Train one contestant and append its evaluations."""
    torch.set_num_threads(1)
    trained, scores = CONTESTANTS[name](task, seed, steps), deque[float](maxlen=SMOOTHED)
    minutes = cpu_minutes = 0.0
    rows = []
    for number in range(1, steps // EVERY + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        policy = next(trained)
        minutes += (time.perf_counter() - start) / 60
        cpu_minutes += (time.process_time() - cpu_start) / 60
        scores.append(evaluated(policy, task, 1_000_000 * (seed + 1) + number * EPISODES))
        rows.append((task, name, seed, number * EVERY, f"{minutes:.3f}", f"{cpu_minutes:.3f}", f"{scores[-1]:.2f}"))
        print(
            f"{name}, seed {seed}: {scores[-1]:.0f} after {number * EVERY:,} steps, {minutes:.1f} minutes", flush=True
        )
        if len(scores) == SMOOTHED and fmean(scores) >= goal:
            break
    with lock, path.open("a", newline="") as file:  # type: ignore[attr-defined]
        csv.writer(file).writerows(rows)


def evaluated(policy: Policy, task: str, first_seed: int) -> float:
    """Mean return of the test episodes."""
    environment, returns = simulator.make(task), []
    for seed in range(first_seed, first_seed + EPISODES):
        observation, _ = environment.reset(seed=seed)
        total, has_ended = 0.0, False
        while not has_ended:
            observation, reward, terminated, truncated, _ = environment.step(policy(observation))
            total, has_ended = total + float(reward), terminated or truncated
        returns.append(total)
    return fmean(returns)


def print_table(path: Path, task: str, goal: float) -> None:
    """Steps and minutes of every contestant until the goal."""
    for (name, seed), points in read(path, task).items():
        number = reached(points, goal)
        point = points[-1 if number is None else number]
        score = fmean(one.score for one in points[-SMOOTHED:])
        verdict = f"had {score:.0f}" if number is None else f"reached {goal:g}"
        taken = f"{point.step:7,} steps, {point.minutes:6.1f} minutes ({point.cpu_minutes:.1f} of CPU time)"
        print(f"{name:44} seed {seed:3}  {verdict} after {taken}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="file that evaluations are appended to")
    parser.add_argument("--goal", type=float, required=True, help="the score to reach")
    parser.add_argument("--task", default="Hopper-v5", help="a Gymnasium task")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one run of every contestant per seed")
    parser.add_argument("--steps", type=int, default=300_000, help="most environment steps")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="who trains")
    parser.add_argument("--processes", type=int, default=2, help="contestants at a time; at most one per core")
    parser.add_argument("--table", action="store_true", help="only print what the file says")
    arguments = parser.parse_args()
    if arguments.steps % EVERY:
        parser.error(f"--steps is {arguments.steps}; it must be a multiple of {EVERY:,}")
    if not arguments.table:
        run_all(arguments)
    print_table(arguments.results, arguments.task, arguments.goal)


def run_all(arguments: argparse.Namespace) -> None:
    """Run what is not in the file, some contestants at a time."""
    path: Path = arguments.results
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(",".join(FIELDS) + "\n")
    curves = read(path, arguments.task)
    for (name, seed), points in curves.items():
        if reached(points, arguments.goal) is None and points[-1].step < arguments.steps:
            raise SystemExit(
                f"{path}: {name}, seed {seed}, ended at {points[-1].step:,} steps for another goal; give another file"
            )
    gymnasium.make(arguments.task).close()  # raises if there is no such task
    jobs = [
        (name, arguments.task, seed, arguments.steps, arguments.goal)
        for seed in arguments.seeds
        for name in arguments.contestants
        if (name, seed) not in curves
    ]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(arguments.processes, maxtasksperchild=1) as pool:
        lock = manager.Lock()
        pool.starmap(compete, [(path, lock, *job) for job in jobs], chunksize=1)


if __name__ == "__main__":
    main()
