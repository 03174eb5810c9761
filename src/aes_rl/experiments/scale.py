"""`aes-rl lab scale`: captured fraction against the number of live slots and against the batch size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import tyro
from matplotlib.figure import Figure
from rich.console import Console

from aes_rl.experiments.score import PROBLEMS, SAMPLERS, Scored, find, once, scored, write
from aes_rl.report.figures import LOOK, save, short, style_of
from aes_rl.report.page import PlainTable, Section, experiment_page, picture

_LOWEST_SHOWN = -1.0
"""Where the figure ends; the tables have all numbers."""


@dataclass(frozen=True)
class Scale:
    """Simulate samplers on recorded problems, small and large buffers and batches; write a figure, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/scale")
    """Folder to write to."""
    samplers: tuple[str, ...] = SAMPLERS
    """Samplers by name, with options after a colon, such as adaptive:nu=auto,floor=0.1; adaptive starts from the
    paper's parameters for the recorded task and agent."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, or folders of them."""
    slots: tuple[int, ...] = (120_000, 200_000, 400_000, 700_000, 1_000_000)
    """Live slots at which to look."""
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    """Batch sizes to simulate; all of them at the most slots, each record's own at all of them."""
    thinning: int = 1
    """Use every so many-th recorded slot: faster and coarser."""
    workers: int | None = None
    """Processes to simulate with; default one a core."""


def scale(words: list[str]) -> None:
    """Simulate, draw and write."""
    asked = tyro.cli(Scale, prog="aes-rl lab scale", args=words)
    asked = replace(asked, samplers=once(asked.samplers))
    problems = [problem.thinned(asked.thinning) for problem in find(asked.problems)]
    jobs = [
        (problem, batch, name)
        for problem in problems
        for batch in sorted({*asked.batch_sizes, problem.facts.batch_size})
        for name in asked.samplers
    ]
    results = scored(jobs, asked.workers)
    own = {problem.name: problem.facts.batch_size for problem in problems}
    asked.output.mkdir(parents=True, exist_ok=True)
    write(results, asked.output / "scale.csv")
    tables = [by_slots(results, own, asked.slots), by_batch_size(results, max(asked.slots))]
    drawn = save(_draw(results, own, asked), asked.output, "scale")
    figure = picture(drawn, "By live slots with the run's own batch, and by batch size at the most slots; cut at −1.")
    lead = (
        "Samplers simulated on norms recorded in real training: 0 is uniform, 1 the best distribution at every moment."
    )
    page = experiment_page("Large buffers, small batches", lead, [Section("Captured fraction", [figure])], tables)
    (asked.output / "index.html").write_text(page)
    console = Console()
    for table in tables:
        console.print(table.title)
        for line in [table.columns, *table.lines]:
            console.print("  ".join(line), highlight=False)
    console.print(f"the figure, all numbers and a page are in {asked.output}")


def by_slots(results: Sequence[Scored], own: dict[str, int], slots: Sequence[int]) -> PlainTable:
    """One line a problem and number of slots, with the batch of the recorded run."""
    lines = []
    for problem, batch in own.items():
        mine = [r for r in results if (r.problem, r.batch_size) == (problem, batch)]
        for count in slots:
            values = [result.at(count) for result in mine]
            if any(value == value for value in values):
                lines.append([problem, str(batch), f"{count:,}", *(f"{value:.2f}" for value in values)])
    return PlainTable("By live slots", ["problem", "batch", "slots", *_samplers(results)], lines, _NOTE)


def by_batch_size(results: Sequence[Scored], slots: int) -> PlainTable:
    """One line a problem and batch size, with so many slots, or as many as the record has."""
    lines = []
    for problem, batch in dict.fromkeys((r.problem, r.batch_size) for r in results):
        mine = [r for r in results if (r.problem, r.batch_size) == (problem, batch)]
        lines.append([problem, str(batch), *(f"{r.at(_most(r, slots)):.2f}" for r in mine)])
    return PlainTable("By batch size", ["problem", "batch", *_samplers(results)], lines, _NOTE)


_NOTE = "Means over the moments with at most a tenth fewer slots."


def _most(result: Scored, slots: int) -> int:
    return min(slots, max(point.live for point in result.points))


def _samplers(results: Sequence[Scored]) -> list[str]:
    return list(once(result.sampler for result in results))


@mpl.rc_context(LOOK)
def _draw(results: Sequence[Scored], own: dict[str, int], asked: Scale) -> Figure:
    figure = Figure(figsize=(8, 2.6 * len(own) + 0.5), layout="constrained")
    axes = figure.subplots(len(own), 2, squeeze=False, sharex="col", sharey=True)
    shown: dict[str, Any] = {}
    for (left, right), (problem, batch) in zip(axes, own.items(), strict=True):
        for sampler in asked.samplers:
            mine = {r.batch_size: r for r in results if (r.problem, r.sampler) == (problem, sampler)}
            heights = [mine[batch].at(count) for count in asked.slots]
            style = {**style_of(sampler), "marker": "o", "markersize": 3}
            (shown[sampler],) = left.plot(asked.slots, heights, **style)
            ends = [mine[size].at(_most(mine[size], max(asked.slots))) for size in asked.batch_sizes]
            right.plot(asked.batch_sizes, ends, **style)
        left.set_ylabel("captured fraction")
        left.set_title(f"{problem}, batch {batch}")
        most = max(_most(r, max(asked.slots)) for r in results if r.problem == problem)
        right.set_title(f"{problem}, {most:,} slots")
        for axis, label in ((left, "live slots"), (right, "batch size")):
            axis.set_xscale("log")
            axis.set_xlabel(label)
            axis.label_outer()
            axis.axhline(0, color="#999999", linewidth=0.8)
        left.set_xticks(asked.slots, [short(count) for count in asked.slots])
        right.set_xticks(asked.batch_sizes, [str(size) for size in asked.batch_sizes])
        left.minorticks_off()
        right.minorticks_off()
        left.set_ylim(_LOWEST_SHOWN, 1)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5)
    return figure
