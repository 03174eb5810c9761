"""Reads the runs below a directory. Good runs are used, and what is wrong or missing is said."""

import csv
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Key = tuple[str, str, str]
"""Task, agent, sampler."""
Member = tuple[str, str, str, int]
"""Task, agent, sampler, seed."""


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run."""

    task: str
    agent: str
    sampler: str
    seed: int
    steps: Array
    scores: Array
    """Mean return of the test episodes at each of the steps."""

    @property
    def member(self) -> Member:
        """Which run it is."""
        return self.task, self.agent, self.sampler, self.seed


Readings = dict[Member, list[tuple[int, float]]]
"""Steps and values by task, agent, sampler and seed."""


@dataclass
class Results:
    """All runs that could be read."""

    curves: list[Curve] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One line for every directory that could not be used, and for what is missing."""
    speeds: list[dict[str, Any]] = field(default_factory=list)
    """Wall time and steps a second of every finished population."""
    captured: Readings = field(default_factory=dict)
    """Captured fraction over training, where it was measured."""
    captured_by_network: dict[tuple[str, str, str, int, str], list[tuple[int, float]]] = field(default_factory=dict)
    """The same of every network's own gradient."""
    variance: Readings = field(default_factory=dict)
    """The gradient's variance itself."""

    def seeds_of(self, key: Key) -> dict[int, Curve]:
        """The runs of one task, agent and sampler."""
        return {c.seed: c for c in self.curves if (c.task, c.agent, c.sampler) == key}

    def methods(self) -> list[Key]:
        """Task, agent and sampler of all runs, in the order they were read."""
        return list(dict.fromkeys((c.task, c.agent, c.sampler) for c in self.curves))


def load(directory: Path) -> Results:
    """Every run below a directory; raises if there is none to report."""
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory; give the directory of a study or a run")
    results = Results()
    expected = _expected(directory, results)
    found = []
    for path in sorted(directory.rglob("config.json")):
        with _told(path.parent, results):
            found.append(_read_run(path.parent))
    holders = _holders(found)
    for run in found:
        with _told(run.directory, results):
            _take(run, holders, results)
    order = {name: number for number, name in enumerate(expected[0])}
    results.curves.sort(key=lambda c: (order.get(c.task, len(order)), c.task, c.agent))
    read = {curve.member for curve in results.curves}
    absent = [run for run in expected[1] if run not in read]
    if absent:
        example = " ".join(map(str, absent[0]))
        results.problems.append(f"{len(absent)} of {len(expected[1])} runs have no evaluation yet, such as {example}")
    if not results.curves:
        raise ValueError("; ".join([f"{directory} holds no run with an evaluation", *results.problems]))
    return results


def common(curves: list[Curve]) -> tuple[Array, Array]:
    """Steps at which all of the runs were evaluated, and their scores [runs, steps]."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    return steps, np.stack([curve.scores[np.isin(curve.steps, steps)] for curve in curves])


def _expected(directory: Path, results: Results) -> tuple[list[str], list[Member]]:
    """The tasks in the study's order, and all its runs."""
    path = directory / "study.json"
    if not path.exists():
        return [], []
    try:
        study = json.loads(path.read_text())
        runs = [
            (task, agent, sampler, seed)
            for task in study["tasks"]
            for agent in study["agents"]
            for sampler in study["samplers"]
            for seed in study["seeds"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        results.problems.append(f"{path} could not be read ({error}); what is missing is not known")
        return [], []
    return list(study["tasks"]), runs


class _Found(NamedTuple):
    """A directory with a run, which may not have begun."""

    directory: Path
    config: dict[str, Any]
    curves: list[Curve]

    @property
    def reached(self) -> int:
        return max((int(curve.steps[-1]) for curve in self.curves), default=0)


@contextmanager
def _told(directory: Path, results: Results) -> Iterator[None]:
    """A directory that cannot be read is one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        results.problems.append(f"{directory} could not be read ({reason}); it is left out")


def _read_run(directory: Path) -> _Found:
    config = json.loads((directory / "config.json").read_text())
    task, agent = str(config["task"]), str(config["agent"])
    rows: dict[tuple[str, int], list[tuple[int, float]]] = {}
    table = directory / "evaluations.csv"
    if table.exists():
        with table.open(newline="") as handle:
            for row in csv.DictReader(handle):
                member = (str(row["sampler"]), int(row["seed"]))
                rows.setdefault(member, []).append((int(row["env_step"]), float(row["mean_return"])))
    curves = []
    for (sampler, seed), own in rows.items():
        steps, scores = np.array(own).T
        curves.append(Curve(task, agent, sampler, seed, steps.astype(np.int64), scores))
    return _Found(directory, config, curves)


def _holders(found: list[_Found]) -> dict[Member, Path]:
    """Which directory each run is read from: where several hold one of the same name, the one that got farthest."""
    holders: dict[Member, Path] = {}
    for run in sorted(found, key=lambda run: -run.reached):
        for curve in run.curves:
            holders.setdefault(curve.member, run.directory)
    return holders


def _take(run: _Found, holders: dict[Member, Path], results: Results) -> None:
    env_steps = int(run.config["env_steps"])
    taken = [curve for curve in run.curves if holders[curve.member] == run.directory]
    others = [curve for curve in run.curves if holders[curve.member] != run.directory]
    if others:
        name, count = " ".join(map(str, others[0].member)), len(others)
        results.problems.append(
            f"{run.directory}: {count} of {len(run.curves)} runs, such as {name}, are left out, because "
            f"{holders[others[0].member]} holds runs of that name too; report one of the directories at a time"
        )
    results.curves += taken
    if taken:
        if run.reached < env_steps:
            note = f"{run.directory} is at step {run.reached:,} of {env_steps:,}; it is shown as far as it is"
            results.problems.append(note)
        _read_speed(run.directory, run.config, results)
        _read_variance(run.directory, {curve.member for curve in taken}, results)


def _read_speed(directory: Path, config: dict[str, Any], results: Results) -> None:
    path = directory / "manifest.json"
    if not path.exists():
        return
    seconds = float(json.loads(path.read_text())["wall_seconds"])
    members = len(config["samplers"]) * len(config["seeds"])
    results.speeds.append(
        {
            "task": config["task"],
            "agent": config["agent"],
            "runs": members,
            "seconds": seconds,
            "agent_steps_per_s": members * int(config["env_steps"]) / max(seconds, 1e-9),
        }
    )


def _read_variance(directory: Path, members: set[Member], results: Results) -> None:
    task, agent, _, _ = next(iter(members))
    path = next((p for p in (directory / "metrics.csv", directory / "metrics.csv.gz") if p.exists()), None)
    if path is None:
        return
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as handle:
        for row in csv.DictReader(handle):
            metric = row["metric"]
            if metric != "variance" and not metric.startswith("captured_fraction"):
                continue
            run = (task, agent, str(row["sampler"]), int(row["seed"]))
            if run not in members:
                continue
            point = (int(row["env_step"]), float(row["value"]))
            network = metric.removeprefix("captured_fraction").removeprefix("_")
            if metric == "variance":
                results.variance.setdefault(run, []).append(point)
            elif network:
                results.captured_by_network.setdefault((*run, network), []).append(point)
            else:
                results.captured.setdefault(run, []).append(point)
