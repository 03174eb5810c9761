"""Numbers of samplers simulated on recorded problems, from results/simulated."""

from collections.abc import Sequence

import numpy as np

from scripts.results_pages import data, tables

NAMES = {
    "halfcheetah-sac": "SAC, HalfCheetah",
    "halfcheetah-ddpg": "DDPG, HalfCheetah",
    "hopper-sac": "SAC, Hopper",
    "hopper-ddpg": "DDPG, Hopper",
    "walker2d-sac": "SAC, Walker2d",
}
SAMPLERS = {
    "prioritized": "prioritized",
    "adaptive": "AES",
    "adaptive:nu=auto": "AES, ν auto",
    "last-value": "last value",
    "predictive": "predictive",
}
PARAMETERS = {"nu": "ν", "floor": "κ", "forget_every": "M", "retention": "ϱ"}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NEAR = 0.9
"""A score at n slots is the mean over the moments with at least this share of n."""


def _near(problem: str, batch: int, sampler: str, slots: int) -> float:
    points = data.simulated("scale")[problem, batch, sampler]
    most = min(slots, max(live for live, _ in points))
    return float(np.mean([value for live, value in points if _NEAR * most <= live <= most]))


def scale_table(batches: Sequence[int], problems: Sequence[str] = tuple(NAMES)) -> str:
    """Captured fraction at a million slots (or as many as the record has) by batch size."""
    lines = [
        [NAMES[problem], str(batch), *(tables.fraction(_near(problem, batch, name, 1_000_000)) for name in SAMPLERS)]
        for problem in problems
        for batch in batches
    ]
    return tables.table(["problem", "batch size", *SAMPLERS.values()], lines)


def scaled(problem: str, batch: int, sampler: str, slots: int = 1_000_000) -> str:
    """One number of the table."""
    return tables.fraction(_near(problem, batch, sampler, slots))


def _last_tenth(problem: str, batch: int, sampler: str) -> float:
    points = data.simulated("sweep")[problem, batch, sampler]
    return float(np.mean([value for _, value in points[-max(1, len(points) // 10) :]]))


def swept(problem: str, batch: int, option: str, value: str) -> str:
    """Captured fraction over the last tenth of a record with one parameter of AES changed."""
    return tables.fraction(_last_tenth(problem, batch, f"adaptive:{option}={value}"))


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e5 else "10" + str(round(np.log10(value))).translate(_RAISED)


def sweep_table() -> str:
    """AES with one parameter changed at a time."""
    problems = ("halfcheetah-sac", "hopper-sac", "halfcheetah-ddpg")
    columns = [(problem, batch) for problem in problems for batch in (256, 64)]
    variants = dict.fromkeys(sampler for _, _, sampler in data.simulated("sweep"))
    lines = []
    for sampler in variants:
        option, _, value = sampler.removeprefix("adaptive:").partition("=")
        number = value if value == "auto" else _number(float(value))
        values = [tables.fraction(_last_tenth(problem, batch, sampler)) for problem, batch in columns]
        lines.append([f"{PARAMETERS[option]} = {number}", *values])
    return tables.table(["parameter", *(f"{NAMES[problem]}, batch {batch}" for problem, batch in columns)], lines)
