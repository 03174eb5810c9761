"""Reads the runs below a directory. Good runs are used, and what is wrong or missing is said."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.report.curves import Curve, Key, Member
from aes_rl.report.escaping import one_line
from aes_rl.report.limits import MOST_METHODS, MOST_NETWORKS, MOST_READINGS, MOST_RUNS, MOST_SEEDS, MOST_TASKS
from aes_rl.report.runs import Plan, Points, Run, Tables, read_plan, read_run, read_variance, read_wall_seconds
from aes_rl.report.search import run_directories

Readings = dict[Member, Points]
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
    captured_by_network: dict[tuple[str, str, str, int, str], Points] = field(default_factory=dict)
    """The same of every network's own gradient."""
    variance: Readings = field(default_factory=dict)
    """The gradient's variance itself."""

    def tell(self, problem: str) -> None:
        """Add a problem. It may quote paths and files that others made, so it is reduced to one printable line."""
        self.problems.append(one_line(problem))

    def seeds_of(self, key: Key) -> dict[int, Curve]:
        """The runs of one task, agent and sampler."""
        return {c.seed: c for c in self.curves if c.key == key}

    def methods(self) -> list[Key]:
        """Task, agent and sampler of all runs, in the order they were read."""
        return list(dict.fromkeys(c.key for c in self.curves))


class _Room:
    """Counts what a report holds against its limits."""

    def __init__(self) -> None:
        self._runs: Counter[Key] = Counter()
        self._readings = 0
        self._networks: set[str] = set()

    def exceeded_by(self, curves: list[Curve]) -> str | None:
        """Add some runs, or say in words which limit they would exceed."""
        runs = self._runs + Counter(curve.key for curve in curves)
        for count, most, things in (
            (runs.total(), MOST_RUNS, "runs"),
            (len({task for task, _, _ in runs}), MOST_TASKS, "tasks"),
            (len(runs), MOST_METHODS, "combinations of task, agent and sampler"),
            (max(runs.values(), default=0), MOST_SEEDS, "seeds of one sampler"),
        ):
            if count > most:
                return f"{count:,} {things}, more than {most:,}"
        self._runs = runs
        return None

    def add_readings(self, count: int, networks: set[str]) -> None:
        """Add some readings; raises where they would exceed a limit."""
        count, networks = self._readings + count, self._networks | networks
        for number, most, things in (
            (count, MOST_READINGS, "readings"),
            (len(networks), MOST_NETWORKS, "networks"),
        ):
            if number > most:
                raise UserError(
                    f"with them there are {number:,} {things}, more than {most:,}; report fewer directories at a time"
                )
        self._readings, self._networks = count, networks


def load(directory: Path) -> Results:
    """Every run below a directory; raises if there is none to report."""
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; give the directory of a study or a run")
    results, tables, room = Results(), Tables(), _Room()
    plan = _plan(directory, results)
    found = []
    for path in run_directories(directory, results.tell):
        with _told(results, f"{path} could not be read", path, "it is left out"):
            found.append(read_run(path, tables))
    holders = _holders(found)
    for run in found:
        taken = _taken(run, holders, room, results)
        if taken:
            results.curves += taken
            _read_rest(run, {curve.member for curve in taken}, tables, room, results)
    order = {name: number for number, name in enumerate(plan.tasks)}
    results.curves.sort(key=lambda c: (order.get(c.task, len(order)), c.task, c.agent))
    read = {curve.member for curve in results.curves}
    absent = [run for run in plan.runs if run not in read]
    if absent:
        example = " ".join(map(str, absent[0]))
        results.tell(f"{len(absent)} of {len(plan.runs)} runs have no evaluation yet, such as {example}")
    if not results.curves:
        shown = results.problems[:3]
        more = [f"and {len(results.problems) - 3:,} more problems"] if len(results.problems) > 3 else []
        raise UserError("; ".join([f"{directory} holds no run with an evaluation", *shown, *more]))
    return results


def _plan(directory: Path, results: Results) -> Plan:
    path = directory / "study.json"
    with _told(results, f"{path} could not be read", directory, "what is missing is not known"):
        if files.is_file(path):
            return read_plan(path)
    return Plan([], [])


@contextmanager
def _told(results: Results, what: str, directory: Path, then: str) -> Iterator[None]:
    """What a file of the directory has wrong is one line, and not the end of the report."""
    try:
        yield
    except (OSError, UserError) as error:
        reason = str(error).removeprefix(f"{directory}/")
        results.tell(f"{what} ({reason}); {then}")


def _holders(found: list[Run]) -> dict[Member, Path]:
    """Which directory each run is read from: where several hold one of the same name, the one that got farthest."""
    holders: dict[Member, Path] = {}
    for run in sorted(found, key=lambda run: -run.reached):
        for curve in run.curves:
            holders.setdefault(curve.member, run.directory)
    return holders


def _taken(run: Run, holders: dict[Member, Path], room: _Room, results: Results) -> list[Curve]:
    """The runs of a directory that no other directory holds too, as long as the report has room for them."""
    if not run.curves:
        what = "is empty" if (run.directory / "evaluations.csv").exists() else "is missing"
        results.tell(f"{run.directory} has no evaluation yet (evaluations.csv {what})")
    taken = [curve for curve in run.curves if holders[curve.member] == run.directory]
    others = [curve for curve in run.curves if holders[curve.member] != run.directory]
    if others:
        name, count = " ".join(map(str, others[0].member)), len(others)
        results.tell(
            f"{run.directory}: {count} of {len(run.curves)} runs, such as {name}, are left out, because "
            f"{holders[others[0].member]} holds runs of that name too; report one of the directories at a time"
        )
    too_many = room.exceeded_by(taken)
    if too_many:
        results.tell(f"{run.directory} is left out: with it there are {too_many}; report fewer directories at a time")
        return []
    return taken


def _read_rest(run: Run, members: set[Member], tables: Tables, room: _Room, results: Results) -> None:
    """What there is beside the evaluations; damage in it leaves them as they are."""
    directory, config = run.directory, run.config
    if run.reached < config.env_steps:
        results.tell(f"{directory} is at step {run.reached:,} of {config.env_steps:,}; it is shown as far as it is")
    with _told(results, f"{directory}: its time could not be read", directory, "the scores are shown without it"):
        seconds = read_wall_seconds(directory)
        if seconds is not None:
            results.speeds.append(
                {
                    "task": config.task,
                    "agent": config.agent,
                    "runs": config.members,
                    "seconds": seconds,
                    "agent_steps_per_s": config.members * config.env_steps / max(seconds, 1e-9),
                }
            )
    with _told(results, f"{directory}: its readings could not be read", directory, "the scores are shown without them"):
        _add_readings(read_variance(run, members, tables), room, results)


def _add_readings(readings: dict[tuple[Member, str], Points], room: _Room, results: Results) -> None:
    names = {metric: metric.removeprefix("captured_fraction").removeprefix("_") for _, metric in readings}
    room.add_readings(sum(map(len, readings.values())), set(names.values()) - {"", "variance"})
    for (member, metric), points in readings.items():
        if metric == "variance":
            results.variance[member] = points
        elif names[metric]:
            results.captured_by_network[(*member, names[metric])] = points
        else:
            results.captured[member] = points
