"""The table of measures in the paper's layout, for the terminal and as CSV, Markdown and LaTeX."""

import csv
import math
from collections.abc import Iterable
from io import StringIO
from typing import NamedTuple

from aes_rl import paper
from aes_rl.report.analysis import Row
from aes_rl.report.escaping import for_csv, for_latex, for_markdown, number_for_csv
from aes_rl.report.measures import Measures, best_of
from aes_rl.report.wording import counted

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
COLUMNS = {
    "learning_speed": "learning speed",
    "learning_stability": "stability",
    "max_score": "max score",
    "robustness": "robustness",
    "final_performance": "final",
}


class Cell(NamedTuple):
    """One number of the table."""

    text: str
    is_best: bool
    paper: str
    """The paper's number, or an empty string."""
    is_comparable: bool
    """Whether the paper's number has the same number of steps and no error."""


class Line(NamedTuple):
    """One method on one task with one agent."""

    task: str
    agent: str
    sampler: str
    seeds: int
    cells: tuple[Cell, ...]
    note: str
    """Why the paper's numbers are not comparable, or an empty string."""
    source: str = ""
    """Which of several given directories the runs are from; empty if one was given."""

    @property
    def seeds_in_words(self) -> str:
        """The number of seeds with its noun."""
        return counted(self.seeds, "seed")


def lines(rows: list[Row], without_tuned_seed: bool = False) -> list[Line]:
    """The lines of the table, with the best values marked. `without_tuned_seed` leaves out AES's tuning seed."""
    made = []
    for row in rows:
        values = {
            other.sampler: measures
            for other in rows
            if (other.task, other.agent) == (row.task, row.agent) and (measures := _measures(other, without_tuned_seed))
        }
        own = values.get(row.sampler)
        if own is None:
            continue
        cells = tuple(_cell(row, own, name, row.sampler in best_of(values, name)) for name in COLUMNS)
        count = len(row.seeds) - without_tuned_seed
        made.append(Line(row.task, row.agent, row.sampler, count, cells, _note(row), row.source))
    return made


def footnotes(table: list[Line]) -> dict[str, str]:
    """The superscript number of each note, in order of appearance."""
    notes = dict.fromkeys(line.note for line in table if line.note)
    return {note: str(number).translate(_SUPERSCRIPTS) for number, note in enumerate(notes, 1)}


def as_csv(rows: list[Row]) -> str:
    """All numbers, unrounded: all seeds, without the tuned seed, and the paper's."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = ("", "untouched_", "paper_")
    names = ["task", "agent", "sampler", "source", "seeds", "env_steps"]
    measures = [kind + name for kind in kinds for name in COLUMNS]
    writer.writerow([*names, *measures, "paper_is_comparable", "paper_slip"])
    for row in rows:
        parts = (row.measures, row.untouched, row.paper.measures if row.paper else None)
        numbers = [number_for_csv(getattr(part, name)) if part else "" for part in parts for name in COLUMNS]
        slip = row.paper.slip if row.paper else ""
        names = [for_csv(row.task), row.agent, for_csv(row.sampler), for_csv(row.source)]
        writer.writerow([*names, len(row.seeds), row.steps, *numbers, row.is_comparable, slip])
    return text.getvalue()


def as_markdown(table: list[Line]) -> str:
    """One Markdown table. The paper's values are in parentheses, with the sign of a footnote if not comparable."""
    sources = ["from"] if any(line.source for line in table) else []
    head = ["task", "agent", "sampler", *sources, "seeds", *COLUMNS.values()]
    text = [markdown_row(head), markdown_row("---" for _ in head)]
    signs = footnotes(table)
    for line in table:
        own = [line.source] if sources else []
        names = [for_markdown(name) for name in (line.task, line.agent.upper(), line.sampler, *own)]
        text.append(markdown_row([*names, str(line.seeds), *_markdown_cells(line, signs, has_paper=True)]))
    return "\n".join(text) + "\n"


def as_narrow_markdown(table: list[Line], signs: dict[str, str], has_paper: bool) -> str:
    """A Markdown table of one task and agent, without columns for them."""
    sources = ["from"] if any(line.source for line in table) else []
    head = ["sampler", *sources, "seeds", *COLUMNS.values()]
    text = [markdown_row(head), markdown_row("---" for _ in head)]
    for line in table:
        names = [for_markdown(name) for name in ([line.sampler, line.source] if sources else [line.sampler])]
        text.append(markdown_row([*names, str(line.seeds), *_markdown_cells(line, signs, has_paper)]))
    return "\n".join(text)


def _markdown_cells(line: Line, signs: dict[str, str], has_paper: bool) -> list[str]:
    return [
        (f"**{cell.text}**" if cell.is_best else cell.text)
        + (f" ({cell.paper}{signs.get(line.note, '')})" if cell.paper and has_paper else "")
        for cell in line.cells
    ]


def as_latex(table: list[Line]) -> str:
    """A tabular in the paper's layout."""
    head = ["Environment", "Algorithm", "Method", *COLUMNS.values()]
    text = [r"\begin{tabular}{lll" + "r" * len(COLUMNS) + "}", r"\hline", " & ".join(head) + r" \\ \hline"]
    for line in table:
        cells = [rf"\textbf{{{cell.text}}}" if cell.is_best else cell.text for cell in line.cells]
        names = [for_latex(name) for name in (line.task, line.agent.upper(), line.sampler)]
        text.append(" & ".join([*names, *cells]) + r" \\")
    return "\n".join([*text, r"\hline", r"\end{tabular}"]) + "\n"


def number(value: float) -> str:
    """A number rounded for display."""
    if math.isnan(value):
        return "–"
    if value and abs(value) < 0.1:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{digits}e{int(exponent)}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.{1 if abs(value) < 10_000 else 0}f}"


def _measures(row: Row, without_tuned_seed: bool) -> Measures | None:
    return row.untouched if without_tuned_seed else row.measures


def _cell(row: Row, measures: Measures, name: str, is_best: bool) -> Cell:
    published = number(getattr(row.paper.measures, name)) if row.paper else ""
    return Cell(number(getattr(measures, name)), is_best, published, row.is_comparable)


def _note(row: Row) -> str:
    if row.paper is None or row.is_comparable:
        return ""
    if row.paper.slip:
        return f"error in the paper's table: {row.paper.slip}"
    return f"the paper's runs have {paper.horizon(row.task, row.agent):,} steps, these {row.steps:,}"


def markdown_row(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"
