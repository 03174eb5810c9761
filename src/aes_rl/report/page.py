"""The report as one self-contained HTML file, and as Markdown."""

import base64
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from aes_rl.report.escaping import for_markdown
from aes_rl.report.load import Results
from aes_rl.report.tables import COLUMNS, Line, as_markdown, markdown_row


class Picture(NamedTuple):
    """A figure on the page."""

    name: str
    source: str
    caption: str


class Section(NamedTuple):
    """Figures under one heading."""

    title: str
    figures: list[Picture]


class PlainTable(NamedTuple):
    """A table of an experiment."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    note: str


class TableOf(NamedTuple):
    """A table of measures on the page."""

    title: str
    lines: list[Line]
    note: str
    has_paper: bool


def picture(path: Path, caption: str) -> Picture:
    """An SVG file, embedded in the page."""
    return Picture(path.stem, f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}", caption)


def page(
    title: str,
    results: Results,
    window: int,
    sections: list[Section],
    tables: list[TableOf],
    comparisons: list[PlainTable],
) -> str:
    """The HTML of the report."""
    facts = {
        "runs": len(results.curves),
        "tasks": len({curve.task for curve in results.curves}),
        "samplers": len({curve.sampler for curve in results.curves}),
        "evaluations": f"{sum(len(curve.steps) for curve in results.curves):,}",
    }
    return _render(
        "page.html",
        title=title,
        window=window,
        facts=facts,
        problems=results.problems,
        sections=sections,
        tables=tables,
        columns=list(COLUMNS.values()),
        speeds=results.speeds,
        comparisons=comparisons,
    )


def markdown(
    title: str, problems: list[str], sections: list[Section], tables: list[TableOf], comparisons: list[PlainTable]
) -> str:
    """The report as Markdown, with its figures as separate files."""
    parts = [f"# {for_markdown(title)}", *(f"Note: {for_markdown(problem)}." for problem in problems)]
    for section in sections:
        parts.append(f"## {for_markdown(section.title)}")
        parts += [f"![{for_markdown(figure.caption)}](figures/{figure.name}.png)" for figure in section.figures]
    for table in tables:
        beside = "In parentheses the paper's numbers, with ≠ where they do not compare. " if table.has_paper else ""
        note = f"Best values are bold. {beside}{table.note}"
        parts += [f"## {table.title}", as_markdown(table.lines, table.has_paper).rstrip(), note]
    for comparison in comparisons:
        head = [markdown_row(comparison.columns), markdown_row("---" for _ in comparison.columns)]
        body = [markdown_row(map(for_markdown, line)) for line in comparison.lines]
        parts += [f"## {comparison.title}", "\n".join(head + body), comparison.note]
    return "\n\n".join(parts) + "\n"


def experiment_page(title: str, lead: str, sections: list[Section], tables: list[PlainTable]) -> str:
    """The HTML of a laboratory experiment."""
    return _render("experiment.html", title=title, lead=lead, sections=sections, tables=tables)


def _render(template: str, **content: object) -> str:
    folder = files("aes_rl.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text()),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    style = Markup(folder.joinpath("style.css").read_text())
    return environment.get_template(template).render(style=style, **content)
