"""`aes-rl lab scale`: captured fraction against the number of live slots and against the batch size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import tyro
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from rich.console import Console

from aes_rl.lab.commands.score import SAMPLERS, simulated, unique
from aes_rl.lab.recorded import PROBLEMS, find
from aes_rl.lab.score import Score, write
from aes_rl.report.figures import LOOK, save, short, style_of
from aes_rl.report.page import PlainTable, Section, experiment_page, picture

_LOWEST_SHOWN = -1.0
"""Lower limit of the figure; the tables have all values."""


@dataclass(frozen=True)
class Scale:
    """Simulate samplers with small to large buffers and batches on recorded problems; write figure, CSV and page."""

    output: tyro.conf.Positional[Path] = Path("lab/scale")
    """Directory to write to."""
    samplers: tuple[str, ...] = SAMPLERS
    """Samplers by name, with options after a colon, such as adaptive:nu=auto,floor=0.1; adaptive starts from the
    paper's parameters for the recorded task and agent."""
    problems: tuple[Path, ...] = (PROBLEMS,)
    """Recorded problems: files, directories of them, or names of shipped problems."""
    slots: tuple[int, ...] = (240_000, 400_000, 700_000, 1_000_000)
    """Numbers of live slots to show."""
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    """Batch sizes to simulate, shown at the largest number of slots; smaller numbers of slots are shown with the
    recorded run's own batch size."""
    thinning: int = 1
    """k: use every k-th recorded slot; faster and noisier."""
    workers: int | None = None
    """Processes that simulate; by default one per core."""


def scale(argv: list[str]) -> None:
    """Simulate, plot and write."""
    args = tyro.cli(Scale, prog="aes-rl lab scale", args=argv)
    args = replace(args, samplers=unique(args.samplers))
    problems = [problem.thinned(args.thinning) for problem in find(args.problems)]
    jobs = [
        (problem, batch, name)
        for problem in problems
        for batch in sorted({*args.batch_sizes, problem.facts.batch_size})
        for name in args.samplers
    ]
    scores = simulated(jobs, args.workers)
    own = {problem.name: problem.facts.batch_size for problem in problems}
    args.output.mkdir(parents=True, exist_ok=True)
    write(scores, args.output / "scale.csv")
    tables = [by_slots(scores, own, args.slots), by_batch_size(scores, max(args.slots))]
    plotted = save(_plot(scores, own, args), args.output, "scale")
    caption = (
        "By live slots, with the run's own batch size, and by batch size, at the largest number of slots; cut at −1."
    )
    figure = picture(plotted, caption)
    lead = (
        "Samplers simulated on norms recorded in real training: 0 is uniform, 1 the best distribution at each moment."
    )
    page = experiment_page("Large buffers, small batches", lead, [Section("Captured fraction", [figure])], tables)
    (args.output / "index.html").write_text(page)
    console = Console()
    for table in tables:
        console.print(table.title)
        for line in [table.columns, *table.lines]:
            console.print("  ".join(line), highlight=False)
    console.print(f"the figure, all values and a page are in {args.output}")


def by_slots(scores: Sequence[Score], own: dict[str, int], slots: Sequence[int]) -> PlainTable:
    """One row per problem and number of slots, with the batch size of the recorded run."""
    lines = []
    for problem, batch in own.items():
        mine = [r for r in scores if (r.problem, r.batch_size) == (problem, batch)]
        for count in slots:
            values = [score.at(count) for score in mine]
            if any(value == value for value in values):
                lines.append([problem, str(batch), f"{count:,}", *(f"{value:z.2f}" for value in values)])
    return PlainTable("By live slots", ["problem", "batch", "slots", *_samplers(scores)], lines, _NOTE)


def by_batch_size(scores: Sequence[Score], slots: int) -> PlainTable:
    """One row per problem and batch size, at a number of slots or the most that the record has."""
    lines = []
    for problem, batch in dict.fromkeys((r.problem, r.batch_size) for r in scores):
        mine = [r for r in scores if (r.problem, r.batch_size) == (problem, batch)]
        lines.append([problem, str(batch), *(f"{r.at(_most(r, slots)):z.2f}" for r in mine)])
    return PlainTable("By batch size", ["problem", "batch", *_samplers(scores)], lines, _NOTE)


_NOTE = "Means over the moments with at most 10 % fewer slots."


def _most(score: Score, slots: int) -> int:
    return min(slots, max(point.live for point in score.points))


def _samplers(scores: Sequence[Score]) -> list[str]:
    return list(unique(score.sampler for score in scores))


@mpl.rc_context(LOOK)
def _plot(scores: Sequence[Score], own: dict[str, int], args: Scale) -> Figure:
    figure = Figure(figsize=(8, 2.6 * len(own) + 0.5), layout="constrained")
    axes = figure.subplots(len(own), 2, squeeze=False, sharex="col", sharey=True)
    handles: dict[str, Artist] = {}
    for (left, right), (problem, batch) in zip(axes, own.items(), strict=True):
        for sampler in args.samplers:
            mine = {r.batch_size: r for r in scores if (r.problem, r.sampler) == (problem, sampler)}
            heights = [mine[batch].at(count) for count in args.slots]
            style = {**style_of(sampler), "marker": "o", "markersize": 3}
            (handles[sampler],) = left.plot(args.slots, heights, **style)
            ends = [mine[size].at(_most(mine[size], max(args.slots))) for size in args.batch_sizes]
            right.plot(args.batch_sizes, ends, **style)
        left.set_ylabel("captured fraction")
        left.set_title(f"{problem}, batch {batch}")
        most = max(_most(r, max(args.slots)) for r in scores if r.problem == problem)
        right.set_title(f"{problem}, {most:,} slots")
        for axis, label in ((left, "live slots"), (right, "batch size")):
            axis.set_xscale("log")
            axis.set_xlabel(label)
            axis.label_outer()
            axis.axhline(0, color="#999999", linewidth=0.8)
        left.set_xticks(args.slots, [short(count) for count in args.slots])
        right.set_xticks(args.batch_sizes, [str(size) for size in args.batch_sizes])
        left.minorticks_off()
        right.minorticks_off()
        left.set_ylim(_LOWEST_SHOWN, 1)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    return figure
