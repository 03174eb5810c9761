"""What all figures share: their look, the styles of samplers, panels, legends and files."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import cycle, product
from pathlib import Path
from typing import TypedDict

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.typing import LineStyleType

from aes_rl.files import whole_file
from aes_rl.report.escaping import for_figure
from aes_rl.report.wording import sampler_in_words

mpl.use("Agg")

Look = tuple[str, LineStyleType]
"""Colour and line style."""
_SPARE = product(((0, (1, 1)), (0, (6, 2)), (0, (4, 1, 1, 1))), ("#882255", "#332288", "#999933", "#44AA99"))
_SPARE_STYLES: Iterator[Look] = cycle((colour, line) for line, colour in _SPARE)
# Okabe and Ito's palette, which colour-blind readers can distinguish. Every sampler also has its own line style.
_STYLES: dict[str, Look] = defaultdict(
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
WIDTH = 6.4
"""Inches: a figure of this width has legible text on a telephone."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of lines that are not samplers."""
BESIDE = 32
"""Maximum number of characters of a name next to or inside the axes."""
_COLUMNS = 2


class Style(TypedDict):
    """Colour and line style as options of a line."""

    color: str
    linestyle: LineStyleType


def style_of(sampler: str) -> Style:
    """Colour and line style of a sampler as options of a line, the same in all figures of a process."""
    colour, line = look_of(sampler)
    return {"color": colour, "linestyle": line}


def look_of(sampler: str) -> Look:
    """Colour and line style of a sampler, the same in all figures of a process."""
    return _STYLES[sampler]


@mpl.rc_context(LOOK)
def save(figure: Figure, directory: Path, name: str) -> Path:
    """Write the figure in three formats, with the same bytes every time, and return the path of the SVG."""
    directory.mkdir(parents=True, exist_ok=True)
    for suffix, facts in (("png", {}), ("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        with whole_file(directory / f"{name}.{suffix}") as file:
            figure.savefig(file, format=suffix, bbox_inches="tight", metadata=facts)
    return directory / f"{name}.svg"


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, two per row."""
    columns = min(count, _COLUMNS)
    lines = -(-count // columns)
    figure = Figure(figsize=(WIDTH, (2.3 if columns > 1 else 3.0) * lines + 0.4), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(lines, columns)).flatten())
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def legend_below(figure: Figure, shown: Mapping[str, Artist], columns: int | None = None) -> None:
    """Add a legend below the figure, by default with as many columns as fit its width.

    A long legend makes the figure higher, so that the panels keep their size.
    """
    width = figure.get_figwidth()
    inches = [0.065 * len(name) + 0.6 for name in shown]
    most = len(shown) if sum(inches) <= width else int(width / max(inches))
    columns = columns or max(1, min(6, most))
    height, needed = figure.get_figheight(), 0.2 * -(-len(shown) // columns)
    figure.set_figheight(height + max(0.0, needed - 0.35 * height))
    names = [for_figure(name) for name in shown]
    figure.legend(list(shown.values()), names, loc="outside lower center", ncols=columns)


def samplers_below(figure: Figure, shown: Mapping[str, Artist]) -> None:
    """Add a legend of samplers, by their names in words."""
    legend_below(figure, {sampler_in_words(name): handle for name, handle in shown.items()})


def label_steps(axis: Axes, task: str, what: str) -> None:
    """Title and axis labels of a panel over environment steps."""
    axis.set_title(for_figure(task))
    axis.set_xlabel("environment steps")
    axis.set_ylabel(what)
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: short(steps)))


def short(steps: float) -> str:
    """Axis label of a number of steps or slots, such as 250k."""
    if abs(steps) >= 1e6:
        return f"{steps / 1e6:g}M"
    return f"{steps / 1e3:g}k" if abs(steps) >= 1e3 else f"{steps:g}"


def scale_fractions(axis: Axes, side: str, lowest: float) -> None:
    """Scale an axis of captured fractions: linear down to −1, logarithmic below, where a sampler adds variance."""
    bottom = min(lowest, -0.1) * 1.08
    ticks = [tick for tick in (-100.0, -30.0, -10.0, -3.0, -1.0) if tick >= bottom] + [0.0, 0.5, 1.0]
    names = [f"{tick:g}".replace("-", "−") for tick in ticks]
    if side == "x":
        axis.set_xscale("symlog", linthresh=1, linscale=1)
        axis.set_xlim(bottom, 1.08)
        axis.set_xticks(ticks, names)
    else:
        axis.set_yscale("symlog", linthresh=1, linscale=1)
        axis.set_ylim(bottom, 1.08)
        axis.set_yticks(ticks, names)
    axis.minorticks_off()
