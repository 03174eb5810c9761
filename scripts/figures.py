"""Figures and numbers of the README and of docs/idea.md, from results/: python -m scripts.figures."""

import csv
import gzip
import json
import statistics
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from aes_rl.lab import recorded
from scripts import svg

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
SAMPLERS = ("prioritized", "adaptive", "predictive")
CELLS = {
    "SAC, HalfCheetah": "halfcheetah-sac",
    "SAC, Hopper": "hopper-sac",
    "SAC, Walker2d": "walker2d-sac",
    "SAC, Reacher": "reacher-sac",
    "SAC, InvertedDoublePendulum": "inverteddoublependulum-sac",
    "SAC, InvertedPendulum": "invertedpendulum-sac",
    "DDPG, HalfCheetah": "halfcheetah-ddpg",
    "DDPG, Hopper": "hopper-ddpg",
}
Readings = dict[str, dict[int, list[float]]]
"""Captured fractions by sampler and environment step, one per seed."""
_LEFT, _RIGHT = 24.0, 444.0
_LOWEST = -1.0
"""Where the axis of captured fractions ends; smaller values are written as numbers."""


@cache
def readings(cell: str) -> Readings:
    """All captured fractions measured while a cell of results/grid was trained."""
    found: Readings = {sampler: defaultdict(list) for sampler in SAMPLERS}
    with gzip.open(ROOT / "results" / "grid" / cell / "metrics.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "captured_fraction" and row["sampler"] in found:
                found[row["sampler"]][int(row["env_step"])].append(float(row["value"]))
    return found


def second_half(of: dict[int, list[float]]) -> list[float]:
    """The readings in the second half of training."""
    return [value for step, values in of.items() if 2 * step > max(of) for value in values]


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def below_zero() -> dict[str, tuple[int, int]]:
    """How many of all readings of a sampler are below zero, and how many there are."""
    counts = dict.fromkeys(SAMPLERS, (0, 0))
    for cell in CELLS.values():
        for sampler, of in readings(cell).items():
            values = [value for at_step in of.values() for value in at_step]
            negative, total = counts[sampler]
            counts[sampler] = negative + sum(value < 0 for value in values), total + len(values)
    return counts


def captured() -> str:
    """The README's figure: captured fractions in the second half of training, by cell. Narrow enough for a phone."""
    top, row = 88, 62
    height = top + row * len(CELLS) + 22
    elements = svg.legend(20, 20, (112, 218, 100))
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        x = _across(value)
        elements.append(svg.line(x, top - 26, x, height - 26, svg.INK if value == 0 else svg.FAINT))
        name = {0.0: "0: uniform", 1.0: "1: best"}.get(value, f"{value:g}".replace("-", "−"))
        elements.append(svg.text(x, top - 34, name, "middle"))
    for number, (name, cell) in enumerate(CELLS.items()):
        y, of = top + row * number, readings(cell)
        elements.append(svg.text(_LEFT, y - 9, name, style='font-weight="600"'))
        for place, sampler in enumerate(SAMPLERS):
            elements += _spread(y + 5 + 13 * place, sampler, quartiles(second_half(of[sampler])))
    elements.append(svg.text(_LEFT, height - 9, "← adds variance", style='font-size="12"'))
    elements.append(svg.text(_RIGHT, height - 9, "removes variance →", "end", style='font-size="12"'))
    title = "Captured fraction of the removable gradient variance, second half of training: median and quartiles"
    return svg.page(480, height, title, elements)


def _across(value: float) -> float:
    return _LEFT + (max(value, _LOWEST) - _LOWEST) / (1 - _LOWEST) * (_RIGHT - _LEFT)


def _spread(y: float, sampler: str, of: tuple[float, float, float]) -> list[str]:
    low, middle, high = of
    bar = svg.line(_across(low), y, _across(high), y, svg.COLOURS[sampler], 3)
    if middle >= _LOWEST:
        return [bar, svg.mark(_across(middle), y, sampler)]
    written = f"◂ median {middle:.1f}".replace("-", "−")
    colour = svg.COLOURS[sampler]
    return [bar, svg.mark(_across(_LOWEST), y, sampler), svg.text(_across(high) + 12, y + 4, written, colour=colour)]


def norms() -> dict[str, float]:
    """How unequal the squared gradient norms of a real buffer are: SAC on Hopper, the last recorded moment."""
    problem = recorded.load(ROOT / "results" / "problems" / "hopper-sac.safetensors")
    d = np.sort(np.exp(problem.logs[-1].astype(np.float64)).mean(axis=0))[::-1]
    d = d[d > 0]
    root = np.sqrt(d)
    tenth = len(d) // 10
    return {
        "slots": float(problem.insertions[-1]),
        "recorded": float(len(d)),
        "share_of_norms": d[:tenth].sum() / d.sum(),
        "share_of_draws": root[:tenth].sum() / root.sum(),
        "oracle_ratio": root.sum() ** 2 / (len(d) * d.sum()),
    }


def idea() -> str:
    """The figure of docs/idea.md: unequal norms, then the captured fraction over two trainings."""
    elements = _inequality(40, 56, 190, 210)
    for x, name, cell in (
        (330, "SAC, HalfCheetah, batch 256", "halfcheetah-sac"),
        (590, "DDPG, HalfCheetah, batch 64", "halfcheetah-ddpg"),
    ):
        elements += _over_training(x, 56, 190, 210, name, readings(cell))
    elements += svg.legend(330, 318)
    title = "Left: a tenth of the slots holds most of the squared gradient norm. Right: captured fraction over training"
    return svg.page(810, 340, title, elements)


def _frame(x: float, y: float, width: float, height: float, title: str) -> list[str]:
    return [
        svg.text(x, y - 30, title, style='font-weight="600"'),
        svg.line(x, y, x, y + height, svg.INK),
        svg.line(x, y + height, x + width, y + height, svg.INK),
    ]


def _inequality(x: float, y: float, width: float, height: float) -> list[str]:
    """Share of slots in a buffer, of the squared norms they hold, and of the draws they should get."""
    of = norms()
    elements = [
        *_frame(x, y, width, height, "SAC, Hopper: the tenth of"),
        svg.text(x, y - 13, "slots with largest gradients", style='font-weight="600"'),
    ]
    bars = [
        ("of uniform draws", 0.1, svg.FAINT),
        ("of all Σd", of["share_of_norms"], svg.INK),
        ("of best draws", of["share_of_draws"], svg.COLOURS["predictive"]),
    ]
    for number, (name, share, colour) in enumerate(bars):
        left, tall = x + 10 + 62 * number, share * height
        elements.append(
            f'<rect x="{left}" y="{y + height - tall:.1f}" width="46" height="{tall:.1f}" fill="{colour}"/>'
        )
        elements.append(svg.text(left + 23, y + height - tall - 5, f"{100 * share:.0f} %", "middle"))
        head, _, tail = name.partition(" ")
        for below, word in enumerate([head, *tail.split(" ", 1)]):
            elements.append(svg.text(left + 23, y + height + 16 + 15 * below, word, "middle", style='font-size="12"'))
    return elements


def _over_training(x: float, y: float, width: float, height: float, title: str, of: Readings) -> list[str]:
    lowest, last = -4.0, max(of["adaptive"])

    def place(step: int, value: float) -> tuple[float, float]:
        return x + width * step / last, y + height * (1 - max(value, lowest)) / (1 - lowest)

    elements = _frame(x, y, width, height, title)
    elements.append(svg.text(x, y - 13, "captured fraction", style='font-size="12"'))
    for value in range(-4, 2):
        at = place(0, value)[1]
        elements.append(svg.line(x, at, x + width, at, svg.INK if value == 0 else svg.FAINT))
        elements.append(svg.text(x - 6, at + 4, f"{value}".replace("-", "−"), "end", style='font-size="12"'))
    for sampler in SAMPLERS:
        points = [place(step, statistics.median(values)) for step, values in sorted(of[sampler].items())]
        elements.append(svg.path(points, svg.COLOURS[sampler]))
        elements.append(svg.mark(*points[-1], sampler))
    for step, name in ((last // 2, "500k"), (last, "1M slots")):
        anchor = "middle" if step < last else "end"
        elements.append(svg.text(x + width * step / last, y + height + 16, name, anchor, style='font-size="12"'))
    return elements


def facts() -> dict[str, object]:
    """The numbers that pages quote; a test compares them with the pages."""
    halves = {
        name: {sampler: round(quartiles(second_half(of[sampler]))[1], 2) for sampler in SAMPLERS}
        for name, cell in CELLS.items()
        for of in (readings(cell),)
    }
    return {
        "below_zero": below_zero(),
        "median_captured": halves,
        "norms": {key: round(value, 2) for key, value in norms().items()},
    }


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / "captured.svg").write_text(captured())
    (FIGURES / "idea.svg").write_text(idea())
    json.dump(facts(), sys.stdout, indent=2)
