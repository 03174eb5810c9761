"""Reads the runs below directories. Damaged or missing runs are listed as problems, and the others are used."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.report.curves import Curve, Key, Member
from aes_rl.report.escaping import one_line
from aes_rl.report.limits import MOST_METHODS, MOST_NETWORKS, MOST_READINGS, MOST_RUNS, MOST_SEEDS, MOST_TASKS
from aes_rl.report.runs import Plan, Points, Run, Tables, read_plan, read_run, read_variance, read_wall_seconds
from aes_rl.report.search import run_directories
from aes_rl.report.wording import counted

Readings = dict[Member, Points]
"""Steps and values by task, agent, sampler and seed."""


BASELINE = "uniform"
"""The sampler that others are compared with."""


class Speed(NamedTuple):
    """Wall time of a finished population."""

    task: str
    agent: str
    source: str
    runs: int
    seconds: float
    agent_steps_per_s: float


@dataclass
class Results:
    """All runs that could be read."""

    curves: list[Curve] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One line per directory that could not be used, and per missing part."""
    directories: dict[str, Path] = field(default_factory=dict)
    """The given directories by the names that `Curve.source` has; empty if one was given."""
    speeds: list[Speed] = field(default_factory=list)
    captured: Readings = field(default_factory=dict)
    """Captured fraction during training, for the runs that measured it."""
    captured_by_network: dict[tuple[str, str, str, int, str], Points] = field(default_factory=dict)
    """Captured fraction of the gradient of each network."""
    variance: Readings = field(default_factory=dict)
    """Gradient variance during training."""

    def note(self, problem: str) -> None:
        """Add a problem. It may quote untrusted paths and files, so it is escaped to one printable line."""
        self.problems.append(one_line(problem))

    def seeds_of(self, key: Key) -> dict[int, Curve]:
        """The runs of one task, agent and sampler, by seed."""
        return {c.seed: c for c in self.curves if c.key == key}

    def methods(self) -> list[Key]:
        """Task, agent and sampler of all runs, in the order of `curves`."""
        return list(dict.fromkeys(c.key for c in self.curves))

    def baseline_of(self, key: Key) -> Key | None:
        """The runs of uniform replay that a method is compared with, or None.

        They are of the method's own directory, or of the first given that has them; so are those for uniform replay of
        another directory.
        """
        source, rule = next((c.source, c.rule) for c in self.curves if c.key == key)
        same_cell = [c for c in self.curves if c.key[:2] == key[:2] and c.rule == BASELINE]
        own = [c.key for c in same_cell if c.source == source and rule != BASELINE]
        first = (own or [c.key for c in same_cell] or [key])[0]
        return None if first == key else first


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


def load(*directories: Path) -> Results:
    """Read all runs below one directory or several. Raises if no run has an evaluation.

    Runs of different directories are not mixed. If two of them have the same sampler on the same task, the names of all
    samplers get the name of their directory.
    """
    _require_separate(directories)
    results, tables, counts = Results(), Tables(), _Counts()
    labels = _labels(directories)
    if len(directories) > 1:
        results.directories = dict(zip(labels, directories, strict=True))
    plans = [_plan(directory, results) for directory in directories]
    found = [_found(directory, tables, results) for directory in directories]
    methods = Counter(key for runs in found for key in {curve.key for run in runs for curve in run.curves})
    is_repeated = max(methods.values(), default=0) > 1
    for label, plan, own in zip(labels, plans, found, strict=True):
        runs = [run._replace(curves=[_named(curve, label, is_repeated) for curve in run.curves]) for run in own]
        holders = _holders(runs)
        for run in runs:
            taken = _taken(run, holders, counts, results)
            if taken:
                results.curves += taken
                _read_rest(run, taken, tables, counts, results)
        _tell_absent(plan, own, results)
    order = {name: number for number, name in enumerate(task for plan in plans for task in plan.tasks)}
    results.curves.sort(key=lambda c: (order.get(c.task, len(order)), c.task, c.agent))
    if not results.curves:
        names = " and ".join(map(str, directories))
        shown = results.problems[:3]
        more = [f"and {counted(len(results.problems) - 3, 'more problem')}"] if len(results.problems) > 3 else []
        raise UserError("; ".join([f"{names} holds no run with an evaluation", *shown, *more]))
    return results


def _require_separate(directories: Sequence[Path]) -> None:
    for number, directory in enumerate(directories):
        if not directory.is_dir():
            raise UserError(f"{directory} is not a directory; give the directory of a study or a run")
        for other in directories[:number]:
            inner, outer = sorted((directory.resolve(), other.resolve()), key=lambda path: -len(path.parts))
            if inner.is_relative_to(outer):
                raise UserError(f"{directory} and {other} hold the same runs; give one of them")


def _labels(directories: Sequence[Path]) -> list[str]:
    """Short names of the directories: none for a single one, their last parts, or whole paths if these are equal."""
    if len(directories) == 1:
        return [""]
    names = [directory.resolve().name for directory in directories]
    return [
        one_line(str(path) if names.count(name) > 1 else name) for path, name in zip(directories, names, strict=True)
    ]


def _named(curve: Curve, label: str, is_repeated: bool) -> Curve:
    sampler = f"{curve.rule} ({label})" if is_repeated else curve.sampler
    return replace(curve, sampler=sampler, source=label)


def _found(directory: Path, tables: Tables, results: Results) -> list[Run]:
    found = []
    for path in run_directories(directory, results.note):
        with _as_problem(results, f"{path} could not be read", path, "it is left out"):
            found.append(read_run(path, tables))
    return found


def _tell_absent(plan: Plan, found: list[Run], results: Results) -> None:
    members = {curve.member for run in found for curve in run.curves}
    absent = [run for run in plan.runs if run not in members]
    if absent:
        example = " ".join(map(str, absent[0]))
        have = "has" if len(absent) == 1 else "have"
        results.note(f"{len(absent):,} of {counted(len(plan.runs), 'run')} {have} no evaluation yet, such as {example}")


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
        results.note(f"{what} ({reason}); {then}")


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
        results.note(f"{run.directory} has no evaluation yet (evaluations.csv {what})")
    taken = [curve for curve in run.curves if holders[curve.member] == run.directory]
    others = [curve for curve in run.curves if holders[curve.member] != run.directory]
    if others:
        name, count = " ".join(map(str, others[0].member)), len(others)
        results.note(
            f"{run.directory}: {count} of {counted(len(run.curves), 'run')}, such as {name}, left out, because "
            f"{holders[others[0].member]} has runs of the same name; to compare them, give both directories"
        )
    too_many = counts.exceeded_by(taken)
    if too_many:
        results.note(f"{run.directory} is left out: with it there are {too_many}; report fewer directories at a time")
        return []
    return taken


def _read_rest(run: Run, taken: list[Curve], tables: Tables, counts: _Counts, results: Results) -> None:
    """Read wall time and variance readings. Damage in these files does not affect the evaluations."""
    directory, config = run.directory, run.config
    if run.reached < config.env_steps:
        results.note(f"{directory} is at step {run.reached:,} of {config.env_steps:,}; it is shown up to that step")
    with _as_problem(results, f"{directory}: its time could not be read", directory, "the scores are shown without it"):
        seconds = read_wall_seconds(directory)
        if seconds is not None:
            rate = config.members * config.env_steps / max(seconds, 1e-9)
            results.speeds.append(Speed(config.task, config.agent, taken[0].source, config.members, seconds, rate))
    with _as_problem(
        results, f"{directory}: its readings could not be read", directory, "the scores are shown without them"
    ):
        _add_readings(read_variance(directory, taken, tables), counts, results)


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
