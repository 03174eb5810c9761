"""Published curves for comparison: CSV files with a column env_step and one column of scores per seed."""

import csv
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aes_rl.errors import UserError
from aes_rl.report.curves import Array, Steps
from aes_rl.report.limits import LARGEST_STEP, LARGEST_VALUE

_NAME = re.compile(r"(?P<task>[A-Za-z0-9]+)-v\d+_(?P<agent>[a-z0-9]+)")
_NOT_SEEDS = {"env_step", "rew", "rew:shaded"}


class Reference(NamedTuple):
    """Published runs of one task and agent."""

    label: str
    task: str
    """Task name without version."""
    agent: str
    steps: Steps
    scores: Array
    """[seeds, steps]."""


def read_reference(path: Path, label: str) -> Reference:
    """Read a file named like Hopper-v3_sac.csv."""
    match = _NAME.fullmatch(path.stem)
    if match is None:
        raise UserError(f"{path} is not named TASK-vN_AGENT.csv, such as Hopper-v3_sac.csv")
    try:
        with path.open(newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a valid CSV file ({error})") from None
    if not rows or "env_step" not in rows[0]:
        raise UserError(f"{path} has no column env_step")
    seeds = [name for name in rows[0] if name not in _NOT_SEEDS]
    if not seeds:
        raise UserError(f"{path} has no column of scores; add one column per seed")
    try:
        steps = np.array([float(row["env_step"]) for row in rows])
        scores = np.array([[float(row[name]) for row in rows] for name in seeds])
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} has a cell that is not a number ({error})") from None
    if not (np.abs(steps) <= LARGEST_STEP).all() or not (np.abs(scores) <= LARGEST_VALUE).all():
        raise UserError(f"{path} has a number that is not finite, or larger than {LARGEST_VALUE:g}")
    return Reference(label, match["task"], match["agent"], steps.astype(np.int64), scores)
