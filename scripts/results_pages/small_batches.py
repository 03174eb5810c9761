"""The pilot with small batches. Templates call these functions by name."""

import numpy as np

from aes_rl.report.curves import Array
from aes_rl.report.statistics import pooled_permutation_test, probability_of_improvement
from scripts import svg
from scripts.results_pages import data
from scripts.results_pages.tables import NAMES, fraction, p_value, score, table

PILOT_TASKS = ("HalfCheetah", "Hopper", "Walker2d")
_SIZES = (16, 64, 256)
_DRAWN = {"uniform": "#777777", "predictive": svg.COLOURS["predictive"]}
"""Samplers in the figures, and their colours."""


def _pilot_pairs(sampler: str, size: int, other: str, other_size: int) -> list[tuple[Array, Array]]:
    pairs = []
    for task in PILOT_TASKS:
        ours, theirs = data.pilot(task, size, sampler), data.pilot(task, other_size, other)
        if len(ours) and len(theirs):
            pairs.append((ours.mean(axis=1), theirs.mean(axis=1)))
    return pairs


def pilot_improvement(sampler: str, size: int, other: str = "uniform", other_size: int | None = None) -> str:
    """Probability of improvement in the pilot by mean return during training, three tasks together."""
    pairs = _pilot_pairs(sampler, size, other, other_size or size)
    if len(pairs) < len(PILOT_TASKS):
        return "–"
    mean = float(np.mean([probability_of_improvement(ours[:, None], theirs[:, None]) for ours, theirs in pairs]))
    return f"{fraction(mean)} (p {p_value(pooled_permutation_test(pairs))})"


def pilot_verdicts() -> str:
    """Every sampler against uniform replay with the same batch size."""
    samplers = ("prioritized", "adaptive", "predictive")
    lines = [[str(size), *(pilot_improvement(sampler, size) for sampler in samplers)] for size in _SIZES]
    return table(["batch size", *(NAMES[sampler] for sampler in samplers)], lines)


def pilot_scores() -> str:
    """Mean return during training, and over the last 100,000 steps."""
    samplers = ("uniform", "prioritized", "adaptive", "predictive", "balanced")
    lines = []
    for task in PILOT_TASKS:
        for size in (16, 32, 64, 256):
            own = [data.pilot(task, size, sampler) for sampler in samplers]
            if any(len(one) for one in own):
                texts = [f"{score(one.mean())} ({score(one[:, -5:].mean())})" if len(one) else "–" for one in own]
                lines.append([task, str(size), *texts])
    return table(
        ["task", "batch size", *(NAMES.get(name, "predictive, networks balanced") for name in samplers)], lines
    )


def pilot_ratio(task: str, size: int, sampler: str) -> str:
    """Mean return during training relative to uniform replay with a batch of 256."""
    return fraction(_relative(task, size, sampler))


def batch_figure() -> str:
    """Mean return during training against the batch size, relative to uniform replay at 256; a panel per task."""
    top, bottom, width, gap = 74.0, 250.0, 124.0, 14.0
    highest = 1.4
    elements = []
    for number, sampler in enumerate(_DRAWN):
        x = 24 + 120 * number
        elements += [
            svg.path([(x, 22), (x + 30, 22)], _DRAWN[sampler], 2.5),
            svg.text(x + 38, 26.5, f"{sampler} replay"),
        ]
    for value in (0.0, 0.5, 1.0):
        y = bottom - value / highest * (bottom - top)
        elements += [svg.line(44, y, 464, y), svg.text(36, y + 4.5, f"{value:g}", "end")]
    for number, task in enumerate(PILOT_TASKS):
        left = 48 + (width + gap) * number
        across = {size: left + 20 + place * (width - 40) / 2 for place, size in enumerate(_SIZES)}
        elements.append(svg.text(left + width / 2, top - 14, task, "middle", style='font-weight="600"'))
        elements += [svg.text(x, bottom + 18, str(size), "middle") for size, x in across.items()]
        for sampler, colour in _DRAWN.items():
            heights = [_relative(task, size, sampler) / highest * (bottom - top) for size in _SIZES]
            points = [(x, bottom - height) for x, height in zip(across.values(), heights, strict=True)]
            elements += [svg.path(points, colour, 2.5), *(svg.dot(x, y, colour) for x, y in points)]
    elements.append(svg.text(254, bottom + 40, "batch size", "middle"))
    return svg.page(480, 300, "Mean return during training against the batch size", elements)


def _relative(task: str, size: int, sampler: str) -> float:
    return float(data.pilot(task, size, sampler).mean() / data.pilot(task, 256, "uniform").mean())
