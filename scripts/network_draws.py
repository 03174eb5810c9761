"""The tables of docs/network-draws.md: python -m scripts.network_draws.

The first is from long runs in results/small-batches, the second from short ones in results/network-draws.
"""

import csv
import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aes_rl.report.statistics import with_interval
from scripts import markers
from scripts.results_pages.tables import with_ends

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "network-draws.md", ROOT / "results" / "network-draws"
LONG_RUNS = ROOT / "results" / "small-batches"
FIRST_STEP = 10_000
"""Of the readings that count."""
RUNS = tuple((task, agent) for agent in ("sac", "ddpg") for task in ("HalfCheetah-v5", "Hopper-v5"))
NETWORKS = {"critic": "critics", "actor": "actor"}
NAMES = {
    "predictive": "one draw",
    "predictive:forecast=deviation": "one draw, deviation",
    "predictive:forecast=mean-and-last": "one draw, mean and last",
    "predictive:networks=balanced": "balanced",
    "predictive:networks=balanced,forecast=deviation": "balanced, deviation",
    "predictive:networks=balanced,forecast=mean-and-last": "balanced, mean and last",
    "predictive:networks=separate": "separate",
    "predictive:networks=separate,forecast=deviation": "separate, deviation",
    "predictive:networks=separate,forecast=mean-and-last": "separate, mean and last",
}


def readings(task: str, agent: str, sampler: str, network: str) -> list[float]:
    """Captured fractions of a network's gradient, over seeds and moments."""
    rows = []
    for path in sorted(RESULTS.glob(f"{task}-{agent}*/metrics.csv.gz")):
        with gzip.open(path, "rt", newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["sampler"] == sampler]
    wanted = f"captured_fraction_{network}"
    return [float(row["value"]) for row in rows if row["metric"] == wanted and int(row["env_step"]) >= FIRST_STEP]


def table() -> list[str]:
    """Mean and lowest reading of critics and actor, one row per sampler, one column per task and agent."""
    head = [f"{agent.upper()}, {task.split('-')[0]}" for task, agent in RUNS]
    rows = ["| | " + " | ".join(head) + " |", "|---" * (1 + len(head)) + "|"]
    for sampler, name in NAMES.items():
        cells = [" / ".join(_mean_and_lowest(readings(*run, sampler, network)) for network in NETWORKS) for run in RUNS]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


ONE_DRAW, SEPARATE = "predictive", "predictive:networks=separate,forecast=deviation"


class Cell(NamedTuple):
    """A task with a batch size; its seeds may be in several folders."""

    task: str
    batch_size: int
    steps_per_round: int = 1


@cache
def long_cells(steps_per_round: int = 1) -> dict[Cell, list[Path]]:
    """The folders of all complete cells with one update per so many steps."""
    found: dict[Cell, list[Path]] = {}
    for path in sorted(LONG_RUNS.glob("*/config.json")):
        config = json.loads(path.read_text())
        if config["steps_per_round"] == steps_per_round:
            cell = Cell(config["task"], config["sac"]["batch_size"], steps_per_round)
            found.setdefault(cell, []).append(path.parent)
    return dict(sorted(found.items()))


@cache
def long_readings(cell: Cell, sampler: str, network: str) -> dict[int, list[float]]:
    """Captured fractions of a network's gradient in the second half of a long run, by seed."""
    found: dict[int, list[float]] = {}
    for folder in long_cells(cell.steps_per_round)[cell]:
        steps = json.loads((folder / "config.json").read_text())["env_steps"]
        with gzip.open(folder / "metrics.csv.gz", "rt", newline="") as file:
            for row in csv.DictReader(file):
                is_wanted = (row["sampler"], row["metric"]) == (sampler, f"captured_fraction_{network}")
                if is_wanted and 2 * int(row["env_step"]) >= steps:
                    found.setdefault(int(row["seed"]), []).append(float(row["value"]))
    return found


def long_table() -> list[str]:
    """Mean and lowest reading per cell and network, with one draw and with separate draws."""
    rows = ["| | critics, one draw | critics, separate | actor, one draw | actor, separate |", "|---|---|---|---|---|"]
    for cell in long_cells():
        texts = []
        for network in NETWORKS:
            for sampler in (ONE_DRAW, SEPARATE):
                values = [value for of_seed in long_readings(cell, sampler, network).values() for value in of_seed]
                texts.append(_mean_and_lowest(values))
        rows.append(f"| {cell.task}, batch {cell.batch_size} | " + " | ".join(texts) + " |")
    return rows


def gain(network: str) -> np.ndarray:
    """Separate draws minus one draw, means over the second half, of the same seeds: [seeds, cells]."""
    differences = []
    for cell in long_cells():
        one, separate = (long_readings(cell, sampler, network) for sampler in (ONE_DRAW, SEPARATE))
        differences.append([np.mean(separate[seed]) - np.mean(one[seed]) for seed in sorted(one)])
    return np.array(differences).T


def interval(network: str) -> str:
    """The mean gain over cells and seeds, with its 95 % bootstrap interval over seeds within cells."""
    return with_ends(with_interval(np.mean, gain(network), repetitions=10_000))


def gains() -> str:
    """What separate draws change, as a sentence."""
    return (
        "Separate draws minus one draw with the same seed, mean over these cells (95 % bootstrap interval): critics "
        f"{interval('critic')}, actor {interval('actor')}."
    )


def _mean_and_lowest(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{sum(values) / len(values):z.2f} ({min(values):z.2f})".replace("-", "−")


def with_tables(page: str) -> str:
    """The page with its tables made anew."""
    page = markers.filled(page, "long-runs", [*long_table(), "", gains()])
    return markers.filled(page, "network-draws", table())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
