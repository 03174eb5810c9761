"""Figures that compare samplers over all tasks."""

from itertools import cycle

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from aes_rl import paper
from aes_rl.report.analysis import Aggregate
from aes_rl.report.escaping import for_figure
from aes_rl.report.figures import BESIDE, LOOK, WIDTH, legend_below, look_of, samplers_below, scale_fractions, style_of
from aes_rl.report.statistics import Interval, bootstrap, interquartile_mean_curve, performance_profile
from aes_rl.report.verdicts import Verdict
from aes_rl.report.wording import sampler_in_words

_MARKERS = "osD^vP*X"
"""Markers of tasks; enough for the paper's eight."""


@mpl.rc_context(LOOK)
def aggregate_scores(aggregate: Aggregate) -> Figure:
    """Interquartile means and probabilities of improvement over the baseline, with 95 % intervals."""
    figure = Figure(figsize=(WIDTH, 0.4 * len(aggregate.interquartile_means) + 1), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    samplers = list(reversed(aggregate.interquartile_means))
    _intervals(left, samplers, aggregate.interquartile_means)
    left.set_xlabel("interquartile mean of\nnormalized final scores")
    _intervals(right, samplers, {one: value for (one, _), value in aggregate.improvements.items()})
    right.axvline(0.5, color="#999999", linewidth=0.8)
    right.set_xlim(-0.03, 1.03)
    right.set_xlabel(f"probability of improvement\nover {_name(aggregate.baseline)}")
    return figure


@mpl.rc_context(LOOK)
def profiles(aggregate: Aggregate) -> Figure:
    """Performance profile (fraction of runs above each score), and interquartile mean during training."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown: dict[str, Line2D] = {}
    highest = max(float(scores.max()) for scores in aggregate.finals.values())
    lowest = min(0.0, *(float(scores.min()) for scores in aggregate.finals.values()))
    thresholds = np.linspace(lowest, max(highest, 1.0) * 1.02, 200)
    has_spread = len(aggregate.seeds) > 1
    for sampler, scores in aggregate.finals.items():
        colour, _ = look_of(sampler)
        (shown[sampler],) = left.plot(thresholds, performance_profile(scores, thresholds), **style_of(sampler))
        if has_spread:
            low, high = bootstrap(lambda drawn: performance_profile(drawn, thresholds), scores, repetitions=500)
            left.fill_between(thresholds, low, high, color=colour, alpha=0.15, linewidth=0)
    left.set_xlabel("normalized final score τ")
    left.set_ylabel("share of runs above τ")
    percents = 100 * aggregate.fractions
    marker = "o" if len(percents) == 1 else ""
    for sampler, curves in aggregate.curves.items():
        right.plot(percents, interquartile_mean_curve(curves), marker=marker, **style_of(sampler))
        if has_spread:
            low, high = bootstrap(interquartile_mean_curve, curves, repetitions=200)
            right.fill_between(percents, low, high, color=look_of(sampler)[0], alpha=0.15, linewidth=0)
    right.set_xlabel("share of the environment steps, %")
    right.set_ylabel("interquartile mean of\nnormalized scores")
    samplers_below(figure, shown)
    return figure


@mpl.rc_context(LOOK)
def captured_against_score(made: list[Verdict]) -> Figure | None:
    """Captured fraction against probability of improvement over uniform replay, one point per sampler and cell."""
    measured = [one for one in made if one.measured_seeds]
    if not measured:
        return None
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    sides = figure.subplots(1, 2, sharey=True)
    markers = dict(zip(dict.fromkeys(one.task for one in measured), cycle(_MARKERS), strict=False))
    agents = sorted({one.agent for one in measured}, reverse=True)
    fills = {agent: "" if number == 0 else "white" for number, agent in enumerate(agents)}
    for one in measured:
        colour, _ = look_of(one.sampler)
        for axis, improvement in zip(sides, (one.training_improvement, one.final_improvement), strict=True):
            axis.plot(
                one.captured, improvement.value, color=colour, marker=markers[one.task],
                markerfacecolor=fills[one.agent] or colour, linestyle="none", clip_on=False,
            )  # fmt: skip
    lowest = min(one.captured for one in measured)
    for axis, score in zip(sides, ("by mean return during training", "by final score"), strict=True):
        axis.axhline(0.5, color="#999999", linewidth=0.8)
        axis.axvline(0, color="#999999", linewidth=0.8)
        scale_fractions(axis, "x", lowest)
        axis.set_title(score)
        axis.set_xlabel("captured fraction")
        axis.set_ylim(-0.05, 1.05)
    sides[0].set_ylabel("probability of improvement\nover uniform replay")
    looks = {sampler_in_words(one.sampler): look_of(one.sampler)[0] for one in measured}
    samplers = {name: Line2D([], [], color=colour, linewidth=4) for name, colour in looks.items()}
    kinds = {f"{agent.upper()}, {'hollow' if fill else 'filled'}": _sign("o", fill) for agent, fill in fills.items()}
    tasks = {paper.name_of(task): _sign(marker) for task, marker in markers.items()}
    columns = [samplers, kinds if len(agents) > 1 else {}, tasks]
    height = max(len(samplers), len(kinds), -(-len(tasks) // 2))
    legend_below(figure, _in_columns([column for column in columns if column], height), 4)
    return figure


def _sign(marker: str, fill: str = "") -> Line2D:
    return Line2D([], [], color="#444444", marker=marker, markerfacecolor=fill or "#444444", linestyle="none")


def _in_columns(kinds: list[dict[str, Line2D]], height: int) -> dict[str, Artist]:
    """Entries of a legend that is filled by columns, so that a new kind begins a new column."""
    shown: dict[str, Artist] = {}
    for number, kind in enumerate(kinds):
        shown |= kind
        missing = -len(kind) % height if number < len(kinds) - 1 else 0
        shown |= {" " * (len(shown) + blank + 1): Line2D([], [], linestyle="none") for blank in range(missing)}
    return shown


def _name(sampler: str) -> str:
    return for_figure(sampler_in_words(sampler), BESIDE)


def _intervals(axis: Axes, samplers: list[str], values: dict[str, Interval]) -> None:
    """One row per sampler, from the bottom; a sampler without a value has an empty row."""
    for height, sampler in enumerate(samplers):
        interval, (colour, _) = values.get(sampler), look_of(sampler)
        if interval is None:
            continue
        if interval.has_ends:
            axis.barh(height, interval.high - interval.low, left=interval.low, height=0.5, color=colour, alpha=0.35)
            axis.plot([interval.value] * 2, [height - 0.25, height + 0.25], color=colour, linewidth=2)
        else:
            axis.plot(interval.value, height, color=colour, marker="o", clip_on=False)
    axis.use_sticky_edges = False
    axis.autoscale_view()
    axis.set_yticks(range(len(samplers)), [_name(sampler) for sampler in samplers])
    axis.set_ylim(-0.6, len(samplers) - 0.4)
    axis.grid(visible=False, axis="y")
