"""Reads the runs below a directory. Damaged or missing runs are listed as problems, and the others are used."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.report.curves import Curve, Key, Member
from aes_rl.report.escaping import one_line
from aes_rl.report.limits import MOST_METHODS, MOST_NETWORKS, MOST_READINGS, MOST_RUNS, MOST_SEEDS, MOST_TASKS
from aes_rl.report.runs import Plan, Points, Run, Tables, read_plan, read_run, read_variance, read_wall_seconds
from aes_rl.report.search import run_directories

Readings = dict[Member, Points]
"""Steps and values by task, agent, sampler and seed."""


class Speed(NamedTuple):
    """Speed of a finished population."""

    task: str
    agent: str
    runs: int
    seconds: float
    """Wall time."""
    agent_steps_per_s: float


@dataclass
class Results:
    """All runs that could be read."""

    curves: list[Curve] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One line per directory that could not be used, and per missing part."""
    speeds: list[Speed] = field(default_factory=list)
    """One entry per finished population."""
    captured: Readings = field(default_factory=dict)
    """Captured fraction during training, for the runs that measured it."""
    captured_by_network: dict[tuple[str, str, str, int, str], Points] = field(default_factory=dict)
    """Captured fraction of the gradient of each network."""
    variance: Readings = field(default_factory=dict)
    """Gradient variance during training."""

    def add_problem(self, problem: str) -> None:
        """Add a problem. It may quote untrusted paths and files, so it is escaped to one printable line."""
        self.problems.append(one_line(problem))

    def seeds_of(self, key: Key) -> dict[int, Curve]:
        """The runs of one task, agent and sampler, by seed."""
        return {c.seed: c for c in self.curves if c.key == key}

    def methods(self) -> list[Key]:
        """Task, agent and sampler of all runs, in the order of `curves`."""
        return list(dict.fromkeys(c.key for c in self.curves))


class _Counts:
    """Counts the runs and readings of a report against its limits."""

    def __init__(self) -> None:
        self._runs: Counter[Key] = Counter()
        self._readings = 0
        self._networks: set[str] = set()

    def exceeded_by(self, curves: list[Curve]) -> str | None:
        """Add runs, or describe the limit that they would exceed."""
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
        """Add readings. Raises if they would exceed a limit."""
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
    """Read all runs below a directory. Raises if no run has an evaluation."""
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; give the directory of a study or a run")
    results, tables, counts = Results(), Tables(), _Counts()
    plan = _plan(directory, results)
    found = []
    for path in run_directories(directory, results.add_problem):
        with _as_problem(results, f"{path} could not be read", path, "it is left out"):
            found.append(read_run(path, tables))
    holders = _holders(found)
    for run in found:
        taken = _taken(run, holders, counts, results)
        if taken:
            results.curves += taken
            _read_rest(run, {curve.member for curve in taken}, tables, counts, results)
    order = {name: number for number, name in enumerate(plan.tasks)}
    results.curves.sort(key=lambda c: (order.get(c.task, len(order)), c.task, c.agent))
    read = {curve.member for curve in results.curves}
    absent = [run for run in plan.runs if run not in read]
    if absent:
        example = " ".join(map(str, absent[0]))
        results.add_problem(f"{len(absent)} of {len(plan.runs)} runs have no evaluation yet, such as {example}")
    if not results.curves:
        shown = results.problems[:3]
        more = [f"and {len(results.problems) - 3:,} more problems"] if len(results.problems) > 3 else []
        raise UserError("; ".join([f"{directory} holds no run with an evaluation", *shown, *more]))
    return results


def _plan(directory: Path, results: Results) -> Plan:
    path = directory / "study.json"
    with _as_problem(results, f"{path} could not be read", directory, "what is missing is not known"):
        if files.is_file(path):
            return read_plan(path)
    return Plan([], [])


@contextmanager
def _as_problem(results: Results, what: str, directory: Path, then: str) -> Iterator[None]:
    """Turn an error in a file of the directory into a problem, and continue the report."""
    try:
        yield
    except (OSError, UserError) as error:
        reason = str(error).removeprefix(f"{directory}/")
        results.add_problem(f"{what} ({reason}); {then}")


def _holders(found: list[Run]) -> dict[Member, Path]:
    """The directory that each run is read from. If several hold the same run, the one with the most steps."""
    holders: dict[Member, Path] = {}
    for run in sorted(found, key=lambda run: -run.reached):
        for curve in run.curves:
            holders.setdefault(curve.member, run.directory)
    return holders


def _taken(run: Run, holders: dict[Member, Path], counts: _Counts, results: Results) -> list[Curve]:
    """The runs that are read from this directory, or none if they would exceed a limit of the report."""
    if not run.curves:
        what = "is empty" if (run.directory / "evaluations.csv").exists() else "is missing"
        results.add_problem(f"{run.directory} has no evaluation yet (evaluations.csv {what})")
    taken = [curve for curve in run.curves if holders[curve.member] == run.directory]
    others = [curve for curve in run.curves if holders[curve.member] != run.directory]
    if others:
        name, count = " ".join(map(str, others[0].member)), len(others)
        results.add_problem(
            f"{run.directory}: {count} of {len(run.curves)} runs, such as {name}, are left out, because "
            f"{holders[others[0].member]} holds runs of that name too; report one of the directories at a time"
        )
    too_many = counts.exceeded_by(taken)
    if too_many:
        results.add_problem(
            f"{run.directory} is left out: with it there are {too_many}; report fewer directories at a time"
        )
        return []
    return taken


def _read_rest(run: Run, members: set[Member], tables: Tables, counts: _Counts, results: Results) -> None:
    """Read wall time and variance readings. Damage in these files does not affect the evaluations."""
    directory, config = run.directory, run.config
    if run.reached < config.env_steps:
        results.add_problem(
            f"{directory} is at step {run.reached:,} of {config.env_steps:,}; only these steps are shown"
        )
    with _as_problem(results, f"{directory}: its time could not be read", directory, "the scores are shown without it"):
        seconds = read_wall_seconds(directory)
        if seconds is not None:
            speed = config.members * config.env_steps / max(seconds, 1e-9)
            results.speeds.append(Speed(config.task, config.agent, config.members, seconds, speed))
    with _as_problem(
        results, f"{directory}: its readings could not be read", directory, "the scores are shown without them"
    ):
        _add_readings(read_variance(run, members, tables), counts, results)


def _add_readings(readings: dict[tuple[Member, str], Points], counts: _Counts, results: Results) -> None:
    names = {metric: metric.removeprefix("captured_fraction").removeprefix("_") for _, metric in readings}
    counts.add_readings(sum(map(len, readings.values())), set(names.values()) - {"", "variance"})
    for (member, metric), points in readings.items():
        if metric == "variance":
            results.variance[member] = points
        elif names[metric]:
            results.captured_by_network[(*member, names[metric])] = points
        else:
            results.captured[member] = points
