"""`aes-rl lab regret`: the paper's theory as experiments, beside its bounds."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from aes_rl.errors import UserError
from aes_rl.lab import theory
from aes_rl.lab.regret import (
    STREAMS,
    Norms,
    Regret,
    dynamic,
    full_information,
    naive,
    partial_information,
    regret_of,
    slope,
    wandering,
)
from aes_rl.report.figures import COLOURS, LOOK, save
from aes_rl.report.page import PlainTable, Section, experiment_page, picture


@dataclass(frozen=True)
class Experiment:
    """Measure regret over the number of updates, and what AES's parameters do to it; write figures, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/regret")
    """Folder to write to."""
    slots: int = 32
    """|B|: slots of the buffer."""
    updates: tuple[int, ...] = (256, 1024, 4096, 16384)
    """T: lengths of the runs, one run each, at least the number of slots."""
    runs: int = 8
    """Repetitions that differ in what is drawn."""


class Job(NamedTuple):
    """One measurement."""

    part: str
    stream: str
    what: str
    at: float
    """What the figure's horizontal axis shows."""
    config: Any
    norms: Norms
    slots: int
    updates: int
    batch_size: int = 1
    overwrite_every: int | None = None


class Row(NamedTuple):
    """Its result."""

    job: Job
    regret: Regret


_KINDS = ("full information", "partial, ν = G²", "partial, ν = |B|G²/κ")
_FORMS = ("never forgets", "restarts (M² < |B|)", "forgets 30 % (M² < |B|)")


def regret(words: list[str]) -> None:
    """Measure, draw and write."""
    asked = tyro.cli(Experiment, prog="aes-rl lab regret", args=words)
    if min(asked.updates) < asked.slots or len(asked.updates) < 2:
        raise UserError(f"updates are {asked.updates}; give two or more, each at least {asked.slots}, the slots")
    jobs = [*_static(asked), *_moving(asked), *_equal_samples(asked), *_parameters(asked)]
    console = Console()
    rows = [
        Row(
            job,
            regret_of(job.config, job.norms, job.slots, job.updates, job.batch_size, asked.runs, job.overwrite_every),
        )
        for job in track(jobs, "measuring regret", console=Console(stderr=True))
    ]
    _write(rows, asked.output / "regret.csv")
    figures = {
        "static": (_draw_static(rows, asked), "Static regret over T; one run each. Dashed: the paper's bounds."),
        "dynamic": (
            _draw_moving(rows, asked),
            "Dynamic regret on norms that wander. Dotted: the trivial bound T·G²/κ.",
        ),
        "samples": (_draw_samples(rows), "Naive and dynamic AES at equal numbers of collected samples."),
        "parameters": (
            _draw_parameters(rows),
            "What each parameter does to dynamic regret; the others stay at their base.",
        ),
    }
    pictures = [picture(save(figure, asked.output, name), caption) for name, (figure, caption) in figures.items()]
    table = _slopes(rows, asked)
    page = experiment_page(
        "Regret of adaptive experience selection",
        f"{asked.slots} slots, one draw an update, {asked.runs} runs; norms at most one, so that G² = 1. Regrets are "
        "divided by |B|².",
        [Section("Regret", pictures)],
        [table],
    )
    (asked.output / "index.html").write_text(page)
    for line in table.lines:
        console.print("  ".join(line))
    console.print(table.note)
    console.print(f"figures, numbers and a page are in {asked.output}")


def _static(asked: Experiment) -> Iterator[Job]:
    """Corollaries 1 and 2: every stream, every T a run of its own."""
    for name, stream in STREAMS.items():
        for updates in asked.updates:
            samplers = (
                full_information(),
                partial_information(asked.slots, updates, is_implied=False),
                partial_information(asked.slots, updates, is_implied=True),
            )
            for kind, config in zip(_KINDS, samplers, strict=True):
                yield Job("static", name, kind, updates, config, stream(asked.slots, updates), asked.slots, updates)


def _moving(asked: Experiment) -> Iterator[Job]:
    """Theorem 1: norms that keep wandering at the same pace, however long the run."""
    pace = min(asked.updates)
    for updates in asked.updates:
        norms = wandering(asked.slots, updates, swings=updates / pace)
        base = dynamic(asked.slots, _FLOOR, _NU)
        samplers = (replace(base, retention=1.0), base, replace(base, retention=0.7))
        for form, config in zip(_FORMS, samplers, strict=True):
            yield Job("dynamic", "wandering", form, updates, config, norms, asked.slots, updates)


_FLOOR, _NU = 0.2, 10.0
"""κ and ν of the dynamic form; norms are at most one, and a slot's sum grows by about |B| times its norm a visit."""
_EPOCH_UPDATES = (4, 16)
"""m of Algorithm 1, below |B|/|Ψ| as the paper asks."""


def _equal_samples(asked: Experiment) -> Iterator[Job]:
    """Algorithm 2 makes one update for every trajectory it collects, Algorithm 1 m of them and starts anew."""
    for samples in asked.updates[:-1]:
        norms = wandering(asked.slots, samples, swings=samples / asked.slots / 8)
        for what, retention in (("dynamic, restarts", 0.0), ("dynamic, ϱ = 0.7", 0.7)):
            sampler = dynamic(asked.slots, _FLOOR, _NU, retention=retention)
            yield Job("samples", "wandering", what, samples, sampler, norms, asked.slots, samples, 1, 1)
        for updates in _EPOCH_UPDATES:
            total = samples * updates
            norms = wandering(asked.slots, total, swings=samples / asked.slots / 8)
            what, config = f"naive, m = {updates}", naive(_FLOOR, _NU, updates)
            yield Job("samples", "wandering", what, samples, config, norms, asked.slots, total, 1, updates)


def _parameters(asked: Experiment) -> Iterator[Job]:
    updates = sorted(asked.updates)[len(asked.updates) // 2]
    slots, root = asked.slots, math.isqrt(asked.slots)
    base = dynamic(slots, _FLOOR, _NU, forget_every=slots * 2, retention=0.7)

    def job(what: str, at: float, config: Any, slots: int = slots, batch_size: int = 1) -> Job:
        norms = wandering(slots, updates, swings=4)
        return Job("parameters", "wandering", what, at, config, norms, slots, updates, batch_size)

    for floor in (0.01, 0.05, 0.1, 0.2, 0.5, 0.9):
        yield job("κ", floor, replace(base, floor=floor))
    for nu in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0):
        yield job("ν", nu, replace(base, nu=nu))
    for every in (root, slots // 2, slots, 2 * slots, 8 * slots):
        yield job("M", every, replace(base, forget_every=every))
    for retention in (0.0, 0.3, 0.7, 0.9, 1.0):
        yield job("ϱ", retention, replace(base, retention=retention))
    for count in (8, 32, 128, 512):
        yield job("|B|", count, base, slots=count)
    for batch_size in (1, 4, 16, 64):
        yield job("|Ψ|", batch_size, base, batch_size=batch_size)


def _slopes(rows: list[Row], asked: Experiment) -> PlainTable:
    last = max(asked.updates)
    lines = []
    for stream in STREAMS:
        for kind in _KINDS:
            own = [r for r in rows if (r.job.part, r.job.stream, r.job.what) == ("static", stream, kind)]
            updates, values = [r.job.updates for r in own], [r.regret.static for r in own]
            bound = _bound(kind, last, asked.slots)
            trivial = theory.trivial(last, 1.0, _floor(kind, last, asked.slots))
            power = f"{slope(updates, values):.2f}" if min(values) > 0 else "negative"
            late = f"{slope(updates[-2:], values[-2:]):.2f}" if min(values[-2:]) > 0 else "negative"
            vacuous = "vacuous" if bound > trivial else "says something"
            lines.append(
                [f"{stream}, {kind}", power, late, f"{values[-1]:,.1f}", f"{bound:,.0f}", f"{trivial:,.0f}", vacuous]
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
        "The theory allows a slope of 1/2 with full information and 2/3 with partial. A bound above the trivial one, "
        "which any distribution with that floor keeps, says nothing: it is vacuous. With full information there is no "
        "floor; uniform sampling's T·G² stands for the trivial bound.",
    )


def _bound(kind: str, updates: int, slots: int) -> float:
    if kind == _KINDS[0]:
        return theory.full_information(updates, 1.0)
    return theory.partial_information(updates, slots, 1.0)


def _floor(kind: str, updates: int, slots: int) -> float:
    return 1.0 if kind == _KINDS[0] else theory.exploration(slots, updates)


@mpl.rc_context(LOOK)
def _draw_static(rows: list[Row], asked: Experiment) -> Figure:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    axes = figure.subplots(1, len(STREAMS), sharey=True)
    shown: dict[str, Any] = {}
    ends = sorted(asked.updates)
    for axis, stream in zip(axes, STREAMS, strict=True):
        for colour, kind in zip(COLOURS, _KINDS, strict=False):
            own = [r for r in rows if (r.job.part, r.job.stream, r.job.what) == ("static", stream, kind)]
            values, errors = [r.regret.static for r in own], [r.regret.static_error for r in own]
            shown[kind] = axis.errorbar([r.job.at for r in own], values, errors, color=colour, marker="o", markersize=3)
        for colour, kind, label in ((COLOURS[0], _KINDS[0], "Corollary 1"), (COLOURS[1], _KINDS[1], "Corollary 2")):
            bounds = [_bound(kind, updates, asked.slots) for updates in ends]
            (shown[label],) = axis.plot(ends, bounds, color=colour, linestyle="--", linewidth=1)
        trivial = [theory.trivial(t, 1.0, theory.exploration(asked.slots, t)) for t in ends]
        (shown["trivial bound, T·G²/κ"],) = axis.plot(ends, trivial, color="#777777", linestyle=":")
        _logarithmic(axis, stream, "updates T", "static regret / |B|²" if axis is axes[0] else "")
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3)
    return figure


@mpl.rc_context(LOOK)
def _draw_moving(rows: list[Row], asked: Experiment) -> Figure:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for colour, form in zip(COLOURS, _FORMS, strict=False):
        own = [r for r in rows if (r.job.part, r.job.what) == ("dynamic", form)]
        values, errors = [r.regret.dynamic for r in own], [r.regret.dynamic_error for r in own]
        power = slope([r.job.updates for r in own], values)
        axis.errorbar(
            [r.job.at for r in own],
            values,
            errors,
            color=colour,
            marker="o",
            markersize=3,
            label=f"{form}: T^{power:.2f}",
        )
    ends = sorted(asked.updates)
    every = dynamic(asked.slots, _FLOOR, _NU).forget_every
    assert every is not None
    rates = [sum(theory.dynamic_rate(t, asked.slots, _FLOOR, every)) for t in ends]
    axis.plot(ends, rates, color=COLOURS[1], linestyle="--", linewidth=1, label="Theorem 1, constants one")
    axis.plot(
        ends, [theory.trivial(t, 1.0, _FLOOR) for t in ends], color="#777777", linestyle=":", label="trivial bound"
    )
    _logarithmic(axis, "norms that keep wandering", "updates T", "dynamic regret / |B|²")
    axis.legend(fontsize=7)
    return figure


@mpl.rc_context(LOOK)
def _draw_samples(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    kinds = list(dict.fromkeys(r.job.what for r in rows if r.job.part == "samples"))
    for colour, what in zip(COLOURS, kinds, strict=False):
        own = [r for r in rows if (r.job.part, r.job.what) == ("samples", what)]
        axis.plot(
            [r.job.at for r in own],
            [r.regret.dynamic / r.regret.uniform for r in own],
            color=colour,
            marker="o",
            markersize=3,
            label=what,
        )
    axis.set_xscale("log", base=2)
    axis.set_xlabel("trajectories collected")
    axis.set_ylabel("dynamic regret / uniform's")
    axis.set_ylim(bottom=0)
    axis.legend()
    return figure


@mpl.rc_context(LOOK)
def _draw_parameters(rows: list[Row]) -> Figure:
    names = list(dict.fromkeys(r.job.what for r in rows if r.job.part == "parameters"))
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(2, -(-len(names) // 2), sharey=True).flatten()
    for axis, name in zip(axes, names, strict=True):
        own = [r for r in rows if (r.job.part, r.job.what) == ("parameters", name)]
        values = [r.regret.dynamic / r.regret.uniform for r in own]
        errors = [r.regret.dynamic_error / r.regret.uniform for r in own]
        axis.errorbar([r.job.at for r in own], values, errors, color=COLOURS[2], marker="o", markersize=3)
        if name != "ϱ":
            axis.set_xscale("log")
        axis.set_xlabel(name)
    axes[0].set_ylim(bottom=0)
    for axis in axes[:: -(-len(names) // 2)]:
        axis.set_ylabel("dynamic regret / uniform's", fontsize=8)
    return figure


def _logarithmic(axis: Any, title: str, across: str, up: str) -> None:
    axis.set_title(title)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(across)
    axis.set_ylabel(up)


def _write(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ("part", "stream", "sampler", "at", "slots", "updates", "batch_size")
        measured = ("static", "static_error", "dynamic", "dynamic_error", "uniform")
        writer.writerow((*columns, *measured))
        for job, found in rows:
            values = (f"{getattr(found, name):.6g}" for name in measured)
            writer.writerow((job.part, job.stream, job.what, job.at, job.slots, job.updates, job.batch_size, *values))
