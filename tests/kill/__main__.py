"""`python -m tests.kill RUNS`: kill runs a hundred times, resume them, and compare them with uninterrupted runs."""

import argparse
from collections import Counter
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import Progress

from tests.kill.harness import MOMENTS, TASKS, Harness


def main() -> None:
    """The long form of test_killed_runs.py."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("runs", type=Path, help="working directory")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments at which runs are killed")
    parser.add_argument("--kills", type=int, default=100, help="number of kills per task")
    args = parser.parse_args()
    console, random, faults = Console(), Random(args.seed), []
    with Harness(args.runs) as harness, Progress(console=console) as progress:
        for task in TASKS:
            bar = progress.add_task(task, total=args.kills)
            counts: Counter[str] = Counter()
            while counts["killed"] < args.kills:
                found = _one_run(harness, task, random, args.kills, counts)
                progress.update(bar, completed=counts["killed"])
                faults += found
                for fault in found:
                    console.print(fault, markup=False)
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            console.print(f"{task}: {shown}", markup=False)
    console.print(f"{len(faults)} faults")
    raise SystemExit(1 if faults else 0)


def _one_run(harness: Harness, task: str, random: Random, kills: int, counts: Counter[str]) -> list[str]:
    """Kill and resume a run until it ends; return its faults."""
    harness.begin(task)
    while counts["killed"] < kills:
        kill = harness.kill(task, random.choice(MOMENTS), random)
        if not kill.is_in_time:
            counts["runs that ended"] += 1
            return harness.faults(task) if kill.ended.code == 0 else [harness.failure(task, kill.ended)]
        counts["killed"] += 1
        counts[f"killed at moment: {kill.moment}"] += 1
        counts["an unfinished file was left"] += kill.was_unfinished
        counts["before the first checkpoint"] += kill.env_step == 0
    counts["runs that ended"] += 1
    return harness.finish(task)


if __name__ == "__main__":
    main()
