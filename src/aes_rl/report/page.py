"""The report as one self-contained HTML file, and as Markdown."""

import base64
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from aes_rl.report.escaping import for_markdown, one_line
from aes_rl.report.load import Results
from aes_rl.report.tables import COLUMNS, Line, as_narrow_markdown, footnotes, markdown_row
from aes_rl.report.wording import counted


class Picture(NamedTuple):
    """A figure on the page."""

    name: str
    source: str
    caption: str
    alt: str
    """What the figure is, for readers who do not see it."""


class Section(NamedTuple):
    """Figures under one heading."""

    title: str
    figures: list[Picture]


class PlainTable(NamedTuple):
    """A table of words and numbers."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    note: str
    grouped: int = 0
    """How many of the first columns are shown as the heading of a group of lines with the same values."""

    def groups(self) -> list[tuple[str, list[list[str]]]]:
        """Consecutive lines with the same heading, without the columns of the heading."""
        made = groupby(self.lines, key=lambda line: ", ".join(line[: self.grouped]))
        return [(heading, [line[self.grouped :] for line in lines]) for heading, lines in made]


class TableOf(NamedTuple):
    """A table of measures on the page."""

    title: str
    lines: list[Line]
    note: str
    has_paper: bool

    @property
    def signs(self) -> dict[str, str]:
        """The signs of the lines' notes; a line without a note has none."""
        return {"": "", **footnotes(self.lines)}


class Content(NamedTuple):
    """What a report shows."""

    title: str
    smoothing: str
    sections: list[Section]
    tables: list[TableOf]
    comparisons: list[PlainTable]


def picture(path: Path, caption: str, alt: str = "") -> Picture:
    """An SVG file, embedded in the page."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return Picture(path.stem, source, caption, alt or caption)


def page(results: Results, content: Content) -> str:
    """The HTML of the report."""
    evaluations = sum(len(curve.steps) for curve in results.curves)
    counts = {
        "run": len(results.curves),
        "task": len({curve.task for curve in results.curves}),
        "sampler": len({curve.sampler for curve in results.curves}),
        "evaluation": evaluations,
    }
    return _render(
        "page.html",
        title=content.title,
        smoothing=content.smoothing,
        facts=[counted(count, noun).split(" ", 1) for noun, count in counts.items()],
        problems=results.problems,
        sources=_sources(results),
        sections=content.sections,
        tables=content.tables,
        columns=list(COLUMNS.values()),
        speeds=results.speeds,
        comparisons=content.comparisons,
    )


def _sources(results: Results) -> PlainTable | None:
    """Which runs are from which directory, if several were given."""
    lines = []
    for name, path in results.directories.items():
        own = [curve for curve in results.curves if curve.source == name]
        seeds = sorted({curve.seed for curve in own})
        kinds = [{curve.task for curve in own}, {curve.agent.upper() for curve in own}, {curve.rule for curve in own}]
        listed = [", ".join(sorted(kind)) or "–" for kind in kinds]
        lines.append([name, one_line(str(path)), *listed, ", ".join(map(str, seeds)) or "–"])
    if not lines:
        return None
    head = ["name", "directory", "tasks", "agents", "samplers", "seeds"]
    note = (
        "Runs of different directories are not mixed: a row is of one directory. Where two have the same sampler on "
        "the same task, the name of the directory is part of the sampler's name."
    )
    return PlainTable("Where the runs are from", head, lines, note)


def markdown(results: Results, content: Content) -> str:
    """The report as Markdown, with its figures as separate files."""
    parts = [
        f"# {for_markdown(content.title)}",
        f"Scores are mean returns of deterministic test episodes during training. {content.smoothing}",
        *(f"Note: {for_markdown(problem)}." for problem in results.problems),
    ]
    sources = _sources(results)
    for section in content.sections:
        parts.append(f"## {for_markdown(section.title)}")
        for figure in section.figures:
            parts += [f"![{for_markdown(figure.alt)}](figures/{figure.name}.svg)", for_markdown(figure.caption)]
    for table in content.tables:
        beside = "In parentheses the paper's numbers, with a sign where they are not comparable. " * table.has_paper
        parts += [f"## {table.title}", f"Best values are bold. {beside}{table.note}"]
        for (task, agent), lines in groupby(table.lines, key=lambda line: (line.task, line.agent)):
            parts += [
                f"**{for_markdown(task)}, {agent.upper()}**",
                as_narrow_markdown(list(lines), table.signs, table.has_paper),
            ]
        if table.has_paper:
            parts += [f"{sign} {note}." for note, sign in table.signs.items() if note]
    for comparison in [*([sources] if sources else []), *content.comparisons]:
        columns = comparison.columns[comparison.grouped :]
        parts += [f"## {comparison.title}", comparison.note]
        for heading, lines_of in comparison.groups():
            body = [markdown_row(map(for_markdown, line)) for line in lines_of]
            parts += [f"**{for_markdown(heading)}**"] if heading else []
            parts.append("\n".join([markdown_row(columns), markdown_row("---" for _ in columns), *body]))
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
