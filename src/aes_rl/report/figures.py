"""The figures, each saved as PNG, SVG and PDF."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.typing import LineStyleType

from aes_rl import paper
from aes_rl.files import whole_file
from aes_rl.report.analysis import FRACTIONS, Aggregate
from aes_rl.report.curves import Steps, common
from aes_rl.report.escaping import for_figure
from aes_rl.report.load import Readings, Results
from aes_rl.report.measures import smooth
from aes_rl.report.reference import Reference
from aes_rl.report.statistics import Array, Interval, bootstrap, interquartile_mean_curve, performance_profile
from aes_rl.report.verdicts import Verdict

mpl.use("Agg")

_SPARE = product(((0, (1, 1)), (0, (6, 2)), (0, (4, 1, 1, 1))), ("#882255", "#332288", "#999933", "#44AA99"))
_SPARE_STYLES: Iterator[tuple[str, LineStyleType]] = cycle((colour, line) for line, colour in _SPARE)
# Okabe and Ito's palette, which colour-blind readers can distinguish. Every sampler also has its own line style.
_STYLES: dict[str, tuple[str, LineStyleType]] = defaultdict(
    lambda: next(_SPARE_STYLES),
    {
        "uniform": ("#0072B2", "-"),
        "prioritized": ("#D55E00", "--"),
        "adaptive": ("#009E73", "-."),
        "predictive": ("#CC79A7", (0, (5, 1))),
        "naive": ("#E69F00", ":"),
        "adaptive:nu=auto": ("#009E73", (0, (1, 1))),
        "last-value": ("#56B4E9", (0, (3, 1, 1, 1))),
    },
)
"""Other samplers, and samplers with options, get a spare style in order of appearance."""
LOOK = mpl.RcParams(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.titlesize": 10,
        "legend.frameon": False,
        "svg.hashsalt": "aes-rl",
        "figure.dpi": 110,
    }
)
_COLUMNS = 4
_MOST_LABEL = 48
"""Maximum number of characters of a name next to or inside the axes."""
_MARKERS = "osD^vP*X"
"""Markers of tasks; enough for the paper's eight."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of lines that are not samplers."""


class Style(TypedDict):
    """How the line of a sampler is drawn, in matplotlib's words."""

    color: str
    linestyle: LineStyleType


def style_of(sampler: str) -> Style:
    """Colour and line style of a sampler, the same in all figures of a process."""
    colour, line = _STYLES[sampler]
    return {"color": colour, "linestyle": line}


def save(figure: Figure, directory: Path, name: str) -> Path:
    """Write the figure in three formats and return the path of the SVG."""
    directory.mkdir(parents=True, exist_ok=True)
    for suffix, facts in (("png", {}), ("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        with whole_file(directory / f"{name}.{suffix}") as file:
            figure.savefig(file, format=suffix, bbox_inches="tight", metadata=facts)
    return directory / f"{name}.svg"


@mpl.rc_context(LOOK)
def learning_curves(results: Results, agent: str, window: int, references: list[Reference]) -> Figure:
    """Learning curves of one agent, one panel per task: mean ± standard deviation over seeds, as in the paper."""
    tasks = list(dict.fromkeys(c.task for c in results.curves if c.agent == agent))
    figure, axes = panels(len(tasks))
    shown: dict[str, Artist] = {}
    for axis, task in zip(axes, tasks, strict=True):
        last = max(int(c.steps[-1]) for c in results.curves if (c.task, c.agent) == (task, agent))
        for reference in references:
            within = reference.steps <= last
            if (reference.task, reference.agent) == (paper.name_of(task), agent) and within.sum() > 1:
                scores = smooth(reference.scores, window)[:, within]
                shown[reference.label] = _band(
                    axis, reference.steps[within], scores, color="#777777", linestyle=(0, (4, 3))
                )
        for sampler in dict.fromkeys(c.sampler for c in results.curves if (c.task, c.agent) == (task, agent)):
            steps, scores = common(list(results.seeds_of((task, agent, sampler)).values()))
            if len(steps):
                shown[sampler] = _band(axis, steps, smooth(scores, window), **style_of(sampler))
        label_steps(axis, task, "test return")
    legend_below(figure, shown)
    return figure


@mpl.rc_context(LOOK)
def captured_fractions(results: Results, agent: str) -> Figure | None:
    """Captured fraction of every sampler during training: median and range over seeds."""

    def finish(axis: Axes) -> None:
        _scale_fractions(axis, "y")
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.axhline(1, color="#999999", linewidth=0.8)

    return _over_training(results.captured, agent, "captured fraction", finish)


@mpl.rc_context(LOOK)
def gradient_variances(results: Results, agent: str) -> Figure | None:
    """Gradient variance of every sampler during training: median and range over seeds."""
    return _over_training(results.variance, agent, "gradient variance", lambda axis: axis.set_yscale("log"))


def _over_training(readings: Readings, agent: str, label: str, finish: Callable[[Axes], None]) -> Figure | None:
    runs = {run: points for run, points in readings.items() if run[1] == agent}
    if not runs:
        return None
    tasks = list(dict.fromkeys(task for task, *_ in runs))
    figure, axes = panels(len(tasks))
    shown: dict[str, Artist] = {}
    for axis, task in zip(axes, tasks, strict=True):
        for sampler in dict.fromkeys(run[2] for run in runs if run[0] == task):
            by_step: dict[float, list[float]] = {}
            for run, points in runs.items():
                if (run[0], run[2]) == (task, sampler):
                    for step, value in points:
                        if value == value:  # nan if there is no variance to remove
                            by_step.setdefault(step, []).append(value)
            steps = sorted(by_step)
            style = style_of(sampler)
            (shown[sampler],) = axis.plot(steps, [np.median(by_step[step]) for step in steps], **style)
            low, high = [min(by_step[step]) for step in steps], [max(by_step[step]) for step in steps]
            axis.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
        finish(axis)
        label_steps(axis, task, label)
    legend_below(figure, shown)
    return figure


@mpl.rc_context(LOOK)
def aggregate_scores(aggregate: Aggregate) -> Figure:
    """Interquartile means and probabilities of improvement over the baseline, with 95 % intervals."""
    figure = Figure(figsize=(9, 0.5 * len(aggregate.interquartile_means) + 1.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _intervals(left, aggregate.interquartile_means)
    left.set_xlabel("interquartile mean of normalised final scores")
    _intervals(right, {one: value for (one, _), value in aggregate.improvements.items()})
    right.axvline(0.5, color="#999999", linewidth=0.8)
    right.set_xlim(0, 1)
    right.set_xlabel(f"probability of improvement over {for_figure(aggregate.baseline, _MOST_LABEL)}")
    return figure


@mpl.rc_context(LOOK)
def profiles(aggregate: Aggregate) -> Figure:
    """Performance profile (fraction of runs above each score), and interquartile mean during training."""
    figure = Figure(figsize=(9, max(3.2, 0.22 * len(aggregate.finals))), layout="constrained")  # the legend is inside
    left, right = figure.subplots(1, 2)
    highest = max(float(scores.max()) for scores in aggregate.finals.values())
    lowest = min(0.0, *(float(scores.min()) for scores in aggregate.finals.values()))
    thresholds = np.linspace(lowest, max(highest, 1.0) * 1.02, 200)
    for sampler, scores in aggregate.finals.items():
        shares = performance_profile(scores, thresholds)
        low, high = bootstrap(lambda drawn: performance_profile(drawn, thresholds), scores, repetitions=500)
        left.plot(thresholds, shares, label=for_figure(sampler, _MOST_LABEL), **style_of(sampler))
        left.fill_between(thresholds, low, high, color=style_of(sampler)["color"], alpha=0.15, linewidth=0)
    left.set_xlabel("normalised final score τ")
    left.set_ylabel("share of runs above τ")
    for sampler, curves in aggregate.curves.items():
        low, high = bootstrap(interquartile_mean_curve, curves, repetitions=200)
        right.plot(
            100 * FRACTIONS,
            interquartile_mean_curve(curves),
            label=for_figure(sampler, _MOST_LABEL),
            **style_of(sampler),
        )
        right.fill_between(100 * FRACTIONS, low, high, color=style_of(sampler)["color"], alpha=0.15, linewidth=0)
    right.set_xlabel("share of the environment steps, %")
    right.set_ylabel("interquartile mean")
    left.legend(loc="lower left")
    return figure


@mpl.rc_context(LOOK)
def captured_against_score(made: list[Verdict]) -> Figure | None:
    """Captured fraction against probability of improvement over uniform replay, one point per sampler and cell."""
    measured = [one for one in made if one.measured_seeds]
    if not measured:
        return None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    sides = figure.subplots(1, 2, sharey=True)
    markers = dict(zip(dict.fromkeys(one.task for one in measured), cycle(_MARKERS), strict=False))
    shown: dict[str, Artist] = {}
    for one in measured:
        colour = style_of(one.sampler)["color"]
        inside = colour if one.agent == "sac" else "white"
        look = {"color": colour, "marker": markers[one.task], "markerfacecolor": inside, "linestyle": "none"}
        for axis, improvement in zip(sides, (one.training_improvement, one.final_improvement), strict=True):
            axis.plot(one.captured, improvement.value, **look)
        shown.setdefault(one.sampler, Line2D([], [], color=colour, linewidth=4))
    for task, marker in markers.items():
        shown[paper.name_of(task)] = Line2D([], [], color="#444444", marker=marker, linestyle="none")
    for axis, when in zip(sides, ("mean return during training", "final score"), strict=True):
        axis.axhline(0.5, color="#999999", linewidth=0.8)
        axis.axvline(0, color="#999999", linewidth=0.8)
        axis.margins(x=0.15)
        _scale_fractions(axis, "x")
        axis.set_title(when)
        axis.set_xlabel("captured fraction")
        axis.set_ylim(-0.03, 1.03)
    sides[0].set_ylabel("probability of improvement\nover uniform replay")
    _add_legend(figure, shown, 4)
    return figure


def _scale_fractions(axis: Axes, side: Literal["x", "y"]) -> None:
    """Scale an axis of captured fractions: linear down to −1, logarithmic below, where a sampler adds variance."""
    getattr(axis, f"set_{side}scale")("symlog", linthresh=1, linscale=2)
    lowest, _ = getattr(axis, f"get_{side}lim")()
    getattr(axis, f"set_{side}lim")(lowest, 1.05)
    below = [tick for tick in (-100, -10, -3, -1) if tick >= lowest]
    getattr(axis, f"set_{side}ticks")([*below, 0, 0.5, 1], [*map(str, below), "0", "0.5", "1"])
    axis.minorticks_off()


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, at most four per row."""
    lines = -(-count // _COLUMNS)
    columns = -(-count // lines)
    figure = Figure(figsize=(max(3.1 * columns, 5), 2.5 * lines + 0.4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(lines, columns)).flatten().tolist()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def _band(axis: Axes, steps: Steps, scores: Array, **style: Unpack[Style]) -> Line2D:
    mean = scores.mean(axis=0)
    (line,) = axis.plot(steps, mean, linewidth=1.4, **style)
    if len(scores) > 1:
        spread = scores.std(axis=0, ddof=1)
        axis.fill_between(steps, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)
    return line


def legend_below(figure: Figure, shown: dict[str, Artist]) -> None:
    """Add a legend below the figure, with as many columns as fit its width."""
    longest = max(map(len, shown), default=0) + 6
    columns = int(14 * figure.get_figwidth() / longest)
    _add_legend(figure, shown, max(1, min(6, columns)))


def _add_legend(figure: Figure, shown: dict[str, Artist], columns: int) -> None:
    """Add a legend. A long legend makes the figure higher, so that the panels keep their size."""
    height, needed = figure.get_figheight(), 0.2 * -(-len(shown) // columns)
    figure.set_figheight(height + max(0.0, needed - 0.35 * height))
    names = [for_figure(name) for name in shown]
    figure.legend(shown.values(), names, loc="outside lower center", ncols=columns)


def label_steps(axis: Axes, task: str, what: str) -> None:
    """Title and axis labels of a panel over environment steps."""
    axis.set_title(for_figure(task))
    axis.set_xlabel("environment steps")
    axis.set_ylabel(what)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: short(steps)))


def short(steps: float) -> str:
    """Axis label of a number of steps or slots, such as 250k."""
    if abs(steps) >= 1e6:
        return f"{steps / 1e6:g}M"
    return f"{steps / 1e3:g}k" if abs(steps) >= 1e3 else f"{steps:g}"


def _intervals(axis: Axes, values: dict[str, Interval]) -> None:
    for height, (sampler, interval) in enumerate(reversed(values.items())):
        colour = style_of(sampler)["color"]
        axis.barh(height, interval.high - interval.low, left=interval.low, height=0.5, color=colour, alpha=0.35)
        axis.plot([interval.value] * 2, [height - 0.25, height + 0.25], color=colour, linewidth=2)
    axis.use_sticky_edges = False
    axis.autoscale_view()
    axis.set_yticks(range(len(values)), [for_figure(sampler, _MOST_LABEL) for sampler in reversed(values)])
    axis.set_ylim(-0.6, len(values) - 0.4)
    axis.grid(visible=False, axis="y")
