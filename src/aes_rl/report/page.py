"""The report as one HTML file that needs nothing beside itself."""

import base64
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2

from aes_rl.report.load import Results
from aes_rl.report.tables import COLUMNS, Line


class Picture(NamedTuple):
    """A figure on the page."""

    source: str
    caption: str


class Section(NamedTuple):
    """Figures under one heading."""

    title: str
    figures: list[Picture]


class TableOf(NamedTuple):
    """A table of measures on the page."""

    title: str
    lines: list[Line]
    note: str
    has_paper: bool


def picture(path: Path, caption: str) -> Picture:
    """An SVG file as part of the page."""
    return Picture(f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}", caption)


def page(title: str, results: Results, window: int, sections: list[Section], tables: list[TableOf]) -> str:
    """The HTML."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(files("aes_rl.report").joinpath("page.html").read_text())
    facts = {
        "runs": len(results.curves),
        "tasks": len({curve.task for curve in results.curves}),
        "samplers": len({curve.sampler for curve in results.curves}),
        "evaluations": f"{sum(len(curve.steps) for curve in results.curves):,}",
    }
    return template.render(
        title=title,
        window=window,
        facts=facts,
        problems=results.problems,
        sections=sections,
        tables=tables,
        columns=list(COLUMNS.values()),
        speeds=results.speeds,
    )
