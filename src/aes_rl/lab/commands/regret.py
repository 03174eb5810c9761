"""`aes-rl lab regret`: the regret of adaptive selection, with the paper's bounds."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import matplotlib as mpl
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from aes_rl.errors import UserError
from aes_rl.lab import theory
from aes_rl.lab.regret import STREAMS, Regret, dynamic, slope
from aes_rl.lab.regret_grid import DYNAMIC_SAMPLERS, FLOOR, NU, STATIC_SAMPLERS, Job, jobs
from aes_rl.report.figures import COLOURS, LOOK, save
from aes_rl.report.page import PlainTable, Section, experiment_page, picture

_GREY = "#777777"


class Marker(TypedDict):
    """How the points of a line are drawn, in matplotlib's words."""

    marker: str
    markersize: float


_MARKED: Marker = {"marker": "o", "markersize": 3}


@dataclass(frozen=True)
class RegretExperiment:
    """Measure regret over the number of updates, and how AES's parameters change it; write figures, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/regret")
    """Directory to write to."""
    slots: int = 32
    """|B|: slots of the buffer."""
    updates: tuple[int, ...] = (256, 1024, 4096, 16384)
    """T: numbers of updates, one run each, at least the number of slots."""
    runs: int = 8
    """Repetitions with different random draws."""


class Row(NamedTuple):
    """A measurement and its result."""

    job: Job
    regret: Regret


def regret(argv: list[str]) -> None:
    """Measure, plot and write."""
    args = tyro.cli(RegretExperiment, prog="aes-rl lab regret", args=argv)
    if min(args.updates) < args.slots or len(args.updates) < 2:
        raise UserError(f"updates are {args.updates}; give two or more, each at least {args.slots}, the slots")
    console = Console()
    grid = track(jobs(args.slots, args.updates), "measuring regret", console=Console(stderr=True))
    rows = [Row(job, job.measured(args.runs)) for job in grid]
    _write(rows, args.output / "regret.csv")
    figures = {
        "static": (_plot_static(rows, args), "Static regret over T; one run each. Dashed: the paper's bounds."),
        "dynamic": (
            _plot_dynamic(rows, args),
            "Dynamic regret on norms that keep changing. Dotted: the trivial bound T·G²/κ.",
        ),
        "samples": (_plot_samples(rows), "Naive and dynamic AES at equal numbers of collected trajectories."),
        "parameters": (
            _plot_parameters(rows),
            "Dynamic regret over each parameter; the others have their base values.",
        ),
    }
    pictures = [picture(save(figure, args.output, name), caption) for name, (figure, caption) in figures.items()]
    table = _slopes(rows, args)
    page = experiment_page(
        "Regret of adaptive experience selection",
        f"{args.slots} slots, one draw per update, {args.runs} runs; norms are at most 1, so G² = 1. Regrets are "
        "divided by |B|².",
        [Section("Regret", pictures)],
        [table],
    )
    (args.output / "index.html").write_text(page)
    for line in table.lines:
        console.print("  ".join(line))
    console.print(table.note)
    console.print(f"figures, numbers and a page are in {args.output}")


def _select(rows: Sequence[Row], part: str, label: str, stream: str | None = None) -> list[Row]:
    return [row for row in rows if (row.job.part, row.job.label) == (part, label) and stream in (None, row.job.stream)]


def _slopes(rows: list[Row], args: RegretExperiment) -> PlainTable:
    last = max(args.updates)
    lines = []
    for stream in STREAMS:
        for sampler in STATIC_SAMPLERS:
            own = _select(rows, "static", sampler, stream)
            updates, values = [r.job.updates for r in own], [r.regret.static for r in own]
            bound = _bound(sampler, last, args.slots)
            trivial = theory.trivial(last, 1.0, _floor(sampler, last, args.slots))
            lines.append(
                [
                    f"{stream}, {sampler}",
                    f"{slope(updates, values):z.2f}" if min(values) > 0 else "negative",
                    f"{slope(updates[-2:], values[-2:]):z.2f}" if min(values[-2:]) > 0 else "negative",
                    f"{values[-1]:,.1f}",
                    f"{bound:,.0f}",
                    f"{trivial:,.0f}",
                    "vacuous" if bound > trivial else "informative",
                ]
            )
    return PlainTable(
        "Slopes of log regret over log T",
        [
            "stream and sampler",
            "slope",
            "between the last two T",
            f"regret at T = {last:,}",
            "the paper's bound",
            "trivial bound",
            "",
        ],
        lines,
        "The theory allows a slope of 1/2 with full information and 2/3 with partial information. A bound above the "
        "trivial one, which holds for any distribution with that floor, is vacuous. Full information has no floor; its "
        "trivial bound is uniform sampling's, T·G².",
    )


def _bound(sampler: str, updates: int, slots: int) -> float:
    if sampler == STATIC_SAMPLERS[0]:
        return theory.full_information(updates, 1.0)
    return theory.partial_information(updates, slots, 1.0)


def _floor(sampler: str, updates: int, slots: int) -> float:
    return 1.0 if sampler == STATIC_SAMPLERS[0] else theory.exploration(slots, updates)


@mpl.rc_context(LOOK)
def _plot_static(rows: list[Row], args: RegretExperiment) -> Figure:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    axes = figure.subplots(1, len(STREAMS), sharey=True)
    handles: dict[str, Any] = {}  # matplotlib does not say that a container of error bars is an artist
    lengths = sorted(args.updates)
    for axis, stream in zip(axes, STREAMS, strict=True):
        for colour, sampler in zip(COLOURS, STATIC_SAMPLERS, strict=False):
            own = _select(rows, "static", sampler, stream)
            values, errors = [r.regret.static for r in own], [r.regret.static_error for r in own]
            handles[sampler] = axis.errorbar(
                [r.job.position for r in own], values, errors, color=colour, marker="o", markersize=3
            )
        for colour, sampler, label in zip(COLOURS, STATIC_SAMPLERS, ("Corollary 1", "Corollary 2"), strict=False):
            bounds = [_bound(sampler, updates, args.slots) for updates in lengths]
            (handles[label],) = axis.plot(lengths, bounds, color=colour, linestyle="--", linewidth=1)
        trivial = [theory.trivial(t, 1.0, theory.exploration(args.slots, t)) for t in lengths]
        (handles["trivial bound, T·G²/κ"],) = axis.plot(lengths, trivial, color=_GREY, linestyle=":")
        _use_log_scales(axis, stream, "updates T", "static regret / |B|²" if axis is axes[0] else "")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


@mpl.rc_context(LOOK)
def _plot_dynamic(rows: list[Row], args: RegretExperiment) -> Figure:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for colour, sampler in zip(COLOURS, DYNAMIC_SAMPLERS, strict=False):
        own = _select(rows, "dynamic", sampler)
        values, errors = [r.regret.dynamic for r in own], [r.regret.dynamic_error for r in own]
        label = f"{sampler}: T^{slope([r.job.updates for r in own], values):z.2f}"
        axis.errorbar(
            [r.job.position for r in own], values, errors, color=colour, label=label, marker="o", markersize=3
        )
    lengths = sorted(args.updates)
    every = dynamic(args.slots, FLOOR, NU).forget_every
    assert every is not None
    rates = [sum(theory.dynamic_rate(t, args.slots, FLOOR, every)) for t in lengths]
    axis.plot(lengths, rates, color=COLOURS[1], linestyle="--", linewidth=1, label="Theorem 1, constants 1")
    trivial = [theory.trivial(t, 1.0, FLOOR) for t in lengths]
    axis.plot(lengths, trivial, color=_GREY, linestyle=":", label="trivial bound")
    _use_log_scales(axis, "norms that keep changing", "updates T", "dynamic regret / |B|²")
    axis.legend(fontsize=7)
    return figure


@mpl.rc_context(LOOK)
def _plot_samples(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    for colour, sampler in zip(COLOURS, _labels(rows, "samples"), strict=False):
        own = _select(rows, "samples", sampler)
        ratios = [r.regret.dynamic / r.regret.uniform for r in own]
        axis.plot([r.job.position for r in own], ratios, color=colour, label=sampler, marker="o", markersize=3)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("trajectories collected")
    axis.set_ylabel("dynamic regret / uniform's")
    axis.set_ylim(bottom=0)
    axis.legend()
    return figure


@mpl.rc_context(LOOK)
def _plot_parameters(rows: list[Row]) -> Figure:
    parameters = _labels(rows, "parameters")
    columns = -(-len(parameters) // 2)
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(2, columns, sharey=True).flatten()
    for axis, parameter in zip(axes, parameters, strict=True):
        own = _select(rows, "parameters", parameter)
        values = [r.regret.dynamic / r.regret.uniform for r in own]
        errors = [r.regret.dynamic_error / r.regret.uniform for r in own]
        axis.errorbar([r.job.position for r in own], values, errors, color=COLOURS[2], marker="o", markersize=3)
        if parameter != "ϱ":
            axis.set_xscale("log")
        axis.set_xlabel(parameter)
    axes[0].set_ylim(bottom=0)
    for axis in axes[::columns]:
        axis.set_ylabel("dynamic regret / uniform's", fontsize=8)
    return figure


def _labels(rows: list[Row], part: str) -> list[str]:
    return list(dict.fromkeys(row.job.label for row in rows if row.job.part == part))


def _use_log_scales(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set_title(title)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)


def _write(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ("part", "stream", "sampler", "at", "slots", "updates", "batch_size")
        measured = ("static", "static_error", "dynamic", "dynamic_error", "uniform")
        writer.writerow((*columns, *measured))
        for job, found in rows:
            values = (f"{getattr(found, name):.6g}" for name in measured)
            settings = (job.part, job.stream, job.label, job.position, job.slots, job.updates, job.batch_size)
            writer.writerow((*settings, *values))
