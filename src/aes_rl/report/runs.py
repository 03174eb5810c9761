"""Reads and checks the files of one run directory. Invalid content raises a UserError with the file and the value."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.report.curves import Curve, Member
from aes_rl.report.limits import (
    LARGEST_STEP,
    LARGEST_VALUE,
    MOST_CONFIG,
    MOST_EVALUATIONS,
    MOST_MEMBERS,
    MOST_NAME,
    MOST_ROWS,
    MOST_ROWS_TOGETHER,
    MOST_STUDY_RUNS,
    MOST_TABLE,
)

Points = list[tuple[int, float]]
"""Steps and values."""
_AGENT = re.compile(r"[A-Za-z0-9_-]{1,40}")  # part of the figures' file names
_WHOLE = re.compile(r"[0-9]{1,16}")


class Config(NamedTuple):
    """The parts of config.json that a report uses."""

    task: str
    agent: str
    samplers: list[str]
    seeds: list[int]
    env_steps: int

    @property
    def members(self) -> int:
        """Number of runs in the population."""
        return len(self.samplers) * len(self.seeds)


class Run(NamedTuple):
    """A run directory. It has no curves if the run has not started."""

    directory: Path
    config: Config
    curves: list[Curve]

    @property
    def reached(self) -> int:
        """Environment step of the last evaluation."""
        return max((int(curve.steps[-1]) for curve in self.curves), default=0)


class Plan(NamedTuple):
    """The tasks and runs in study.json."""

    tasks: list[str]
    runs: list[Member]


class Tables:
    """Reads tables row by row, and limits the total number of rows."""

    def __init__(self) -> None:
        self._left = MOST_ROWS_TOGETHER

    def rows(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
        """Rows with their numbers, starting at 1."""
        for number, row in enumerate(files.read_rows(path, columns, MOST_TABLE), 1):
            if number > MOST_ROWS:
                raise UserError(f"{path} has more than {MOST_ROWS:,} rows; log less often")
            if self._left == 0:
                raise UserError(
                    f"{path} is not read to its end: all tables together have more than {MOST_ROWS_TOGETHER:,} rows; "
                    "report fewer directories at a time"
                )
            self._left -= 1
            yield number, row


def read_run(directory: Path, tables: Tables) -> Run:
    """Read the configuration and the evaluations."""
    config = _config(directory / "config.json")
    table = directory / "evaluations.csv"
    has_rows = files.is_file(table) and table.stat().st_size > 0  # empty if the run has just started
    return Run(directory, config, _curves(table, config, tables) if has_rows else [])


def read_wall_seconds(directory: Path) -> float | None:
    """Wall time of a finished run, or None."""
    path = directory / "manifest.json"
    if not files.is_file(path):
        return None
    seconds = files.read_json(path, MOST_CONFIG).get("wall_seconds")
    if not _is_number(seconds) or not 0 <= seconds <= LARGEST_VALUE:
        raise UserError(f"{path} says wall_seconds {_shown(seconds)}, which must be a number of seconds, at least 0")
    return float(seconds)


def read_variance(directory: Path, curves: list[Curve], tables: Tables) -> dict[tuple[Member, str], Points]:
    """Readings of these runs, by run and metric: variance, captured_fraction and captured_fraction_NETWORK."""
    paths = (directory / "metrics.csv", directory / "metrics.csv.gz")
    path = next((path for path in paths if files.is_file(path)), None)
    if path is None:
        return {}
    by_text = {(curve.rule, str(curve.seed)): curve.member for curve in curves}
    readings: dict[tuple[Member, str], Points] = {}
    for number, row in tables.rows(path, ("env_step", "sampler", "seed", "metric", "value")):
        metric = row["metric"]
        if metric != "variance" and not metric.startswith("captured_fraction"):
            continue
        member = by_text.get((row["sampler"], row["seed"]))
        if member is not None:
            points = readings.setdefault((member, metric), [])
            _name(f"{path}: metric in row {number}", metric)
            # nan means that there is no variance to remove.
            _add(points, path, number, row["env_step"], row["value"], is_nan_allowed=True)
    return readings


def read_plan(path: Path) -> Plan:
    """The tasks of a study in order, and all its runs."""
    study = files.read_json(path)
    tasks, agents, samplers = (_names(path, study, kind) for kind in ("tasks", "agents", "samplers"))
    seeds = _seeds(path, study)
    count = len(tasks) * len(agents) * len(samplers) * len(seeds)
    if count > MOST_STUDY_RUNS:
        raise UserError(f"{path} names {count:,} runs; at most {MOST_STUDY_RUNS:,} can be counted, so divide the study")
    runs = [
        (task, agent, sampler, seed) for task in tasks for agent in agents for sampler in samplers for seed in seeds
    ]
    return Plan(tasks, runs)


def _config(path: Path) -> Config:
    config = files.read_json(path, MOST_CONFIG)
    task, agent, env_steps = _name(f"{path}: task", config.get("task")), config.get("agent"), config.get("env_steps")
    if not isinstance(agent, str) or not _AGENT.fullmatch(agent):
        raise UserError(f"{path} says agent {_shown(agent)}, which must be up to 40 letters, digits, - and _")
    if not _is_whole(env_steps) or not 1 <= env_steps <= LARGEST_STEP:
        raise UserError(f"{path} says env_steps {_shown(env_steps)}, which must be a number from 1 to {LARGEST_STEP:,}")
    samplers, seeds = _names(path, config, "samplers"), _seeds(path, config)
    if len(samplers) * len(seeds) > MOST_MEMBERS:
        raise UserError(
            f"{path} names {len(samplers) * len(seeds):,} runs, samplers times seeds, and a report takes at most "
            f"{MOST_MEMBERS:,} from one directory; divide the seeds among several"
        )
    return Config(task, agent, samplers, seeds, env_steps)


def _curves(path: Path, config: Config, tables: Tables) -> list[Curve]:
    by_text = {(sampler, str(seed)): (sampler, seed) for sampler in config.samplers for seed in config.seeds}
    evaluations: dict[tuple[str, int], Points] = {}
    for number, row in tables.rows(path, ("env_step", "sampler", "seed", "mean_return")):
        member = by_text.get((row["sampler"], row["seed"]))
        if member is None:
            raise UserError(
                f"{path} has sampler {_shown(row['sampler'])} and seed {_shown(row['seed'])} in row {number}, which "
                "config.json does not name"
            )
        _add(evaluations.setdefault(member, []), path, number, row["env_step"], row["mean_return"])
    curves = []
    for (sampler, seed), points in evaluations.items():
        steps, scores = zip(*points, strict=True)
        numbers = np.array(steps, np.int64), np.array(scores)
        curves.append(Curve(config.task, config.agent, sampler, seed, *numbers, rule=sampler))
    return curves


def _add(points: Points, path: Path, number: int, step: str, value: str, is_nan_allowed: bool = False) -> None:
    """Append a point to a curve. Steps must increase."""
    at = int(step) if _WHOLE.fullmatch(step) else 0
    if not 1 <= at <= LARGEST_STEP:
        raise UserError(
            f"{path} has env_step {_shown(step)} in row {number}; it must be a whole number from 1 to {LARGEST_STEP:,}"
        )
    if points and at <= points[-1][0]:
        raise UserError(f"{path} has env_step {at} in row {number} after {points[-1][0]}; steps of a run must ascend")
    if len(points) == MOST_EVALUATIONS:
        raise UserError(f"{path} has more than {MOST_EVALUATIONS:,} rows of one run; evaluate less often")
    try:
        reading = float(value)
    except ValueError:
        reading = math.inf
    if not (abs(reading) <= LARGEST_VALUE or (is_nan_allowed and math.isnan(reading))):
        raise UserError(
            f"{path} has the value {_shown(value)} in row {number}; it must be a number between ±{LARGEST_VALUE:g}"
        )
    points.append((at, reading))


def _names(path: Path, values: dict[str, object], kind: str) -> list[str]:
    names = values.get(kind)
    if not isinstance(names, list) or not names:
        raise UserError(f"{path} says {kind} {_shown(names)}, which must be a list of names")
    return [_name(f"{path}: {kind}", name) for name in names]


def _seeds(path: Path, values: dict[str, object]) -> list[int]:
    seeds = values.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(_is_whole(seed) and 0 <= seed < 2**63 for seed in seeds):
        raise UserError(f"{path} says seeds {_shown(seeds)}, which must be a list of whole numbers from 0 to 2^63 − 1")
    return seeds


def _name(what: str, name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MOST_NAME:
        raise UserError(f"{what} is {_shown(name)}; a name is at most {MOST_NAME} printable characters")
    return name


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return _is_whole(value) or isinstance(value, float)


def _shown(value: object) -> str:
    """A value for an error message, shortened."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}… ({len(shown):,} characters)"
