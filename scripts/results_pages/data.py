"""What the results pages are made of: committed files under results, and the tables of the grid's report."""

import csv
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from aes_rl import paper
from aes_rl.report.curves import Array, Member
from aes_rl.report.load import Readings, Results, load

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
SAMPLERS = ("prioritized", "adaptive", "predictive")
CELLS = (
    ("sac", "HalfCheetah"),
    ("sac", "Hopper"),
    ("sac", "Walker2d"),
    ("sac", "Reacher"),
    ("sac", "InvertedDoublePendulum"),
    ("sac", "InvertedPendulum"),
    ("ddpg", "HalfCheetah"),
    ("ddpg", "Hopper"),
)
"""Cells of the grid in the order of the pages."""


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a table, packed or not."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    yield from csv.DictReader(text.decode().splitlines())


@cache
def grid() -> Results:
    """All runs of the grid."""
    return load(RESULTS / "grid")


@cache
def config(agent: str, task: str) -> dict[str, object]:
    """The configuration of a cell of the grid."""
    found: dict[str, object] = json.loads((RESULTS / "grid" / f"{task.lower()}-{agent}" / "config.json").read_text())
    return found


@cache
def verdicts() -> dict[tuple[str, str, str], dict[str, float]]:
    """Numbers of docs/results/verdicts.csv by agent, task and sampler; an empty cell is nan."""
    return {
        (row["agent"], paper.name_of(row["task"]), row["sampler"]): {
            name: float(value or "nan")
            for name, value in row.items()
            if name not in ("agent", "task", "sampler", "baseline")
        }
        for row in rows(DOCS / "results" / "verdicts.csv")
    }


@cache
def together() -> dict[tuple[str, str, str], dict[str, float]]:
    """Numbers of docs/results/together.csv by agent, sampler and the sampler it is compared with."""
    names = ("final_improvement", "final_p", "training_improvement", "training_p", "tasks")
    return {
        (row["agent"], row["sampler"], row["other"]): {name: float(row[name]) for name in names}
        for row in rows(DOCS / "results" / "together.csv")
    }


@cache
def tests() -> dict[tuple[str, str, int, int], dict[str, str]]:
    """Rows of results/significance_tests.csv by both sides and the steps."""
    return {
        (row["first"], row["second"], int(row["start"]), int(row["stop"])): row
        for row in rows(RESULTS / "significance_tests.csv")
    }


def readings(results: Results, agent: str, task: str, sampler: str, network: str = "") -> Readings:
    """Captured fractions of the seeds of a cell, of all networks together or of one."""
    if network:
        chosen = {key[:4]: points for key, points in results.captured_by_network.items() if key[4] == network}
    else:
        chosen = results.captured
    return {member: points for member, points in chosen.items() if _is_of(member, agent, task, sampler)}


def _is_of(member: Member, agent: str, task: str, sampler: str) -> bool:
    return (paper.name_of(member[0]), member[1], member[2]) == (task, agent, sampler)


def at(own: Readings, step: int) -> Array:
    """The reading of every seed at a step."""
    return np.array([value for points in own.values() for when, value in points if when == step])


@cache
def metric(agent: str, task: str, name: str) -> dict[tuple[str, int, int], float]:
    """One metric of a cell of the grid by sampler, seed and step."""
    path = RESULTS / "grid" / f"{task.lower()}-{agent}" / "metrics.csv.gz"
    return {
        (row["sampler"], int(row["seed"]), int(row["env_step"])): float(row["value"])
        for row in rows(path)
        if row["metric"] == name
    }


PILOT_STEPS = list(range(20_000, 300_001, 20_000))
"""Steps of the evaluations of the pilot with small batches."""


@cache
def pilot(task: str, batch: int, sampler: str) -> Array:
    """Scores [seeds, evaluations] of the pilot with small batches. With 256, seeds of the grid are added."""
    by_seed: dict[int, dict[int, float]] = {}
    for row in rows(RESULTS / "small-batches" / "evaluations.csv"):
        if (paper.name_of(row["task"]), int(row["batch_size"]), row["sampler"]) == (task, batch, sampler):
            by_seed.setdefault(int(row["seed"]), {})[int(row["env_step"])] = float(row["mean_return"])
    if batch == 256:
        for curve in grid().curves:
            if (paper.name_of(curve.task), curve.agent, curve.sampler) == (task, "sac", sampler):
                by_seed[curve.seed] = dict(zip(curve.steps.tolist(), curve.scores.tolist(), strict=True))
    return np.array([[scores[step] for step in PILOT_STEPS] for scores in by_seed.values()])


@cache
def simulated(kind: str) -> dict[tuple[str, int, str], list[tuple[int, float]]]:
    """Live slots and captured fractions by problem, batch size and sampler, of `lab scale` or `lab sweep`."""
    found: dict[tuple[str, int, str], list[tuple[int, float]]] = {}
    for row in rows(RESULTS / "simulated" / f"{kind}.csv.gz"):
        if row["network"] == "total":
            task, agent = row["problem"].split(" ")
            key = (f"{paper.name_of(task).lower()}-{agent}", int(row["batch_size"]), row["sampler"])
            found.setdefault(key, []).append((int(row["live_slots"]), float(row["captured_fraction"])))
    return found
