"""The table of measures in the paper's layout, for the terminal and as CSV, Markdown and LaTeX."""

import csv
from collections.abc import Iterable
from io import StringIO
from typing import NamedTuple

from aes_rl.report.analysis import Row
from aes_rl.report.escaping import for_csv, for_latex, for_markdown
from aes_rl.report.measures import Measures, best_of

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


class Line(NamedTuple):
    """One method on one task with one agent."""

    task: str
    agent: str
    sampler: str
    seeds: int
    cells: tuple[Cell, ...]
    note: str


def lines(rows: list[Row], is_untouched: bool = False) -> list[Line]:
    """The lines of the table, with the best values marked. `is_untouched` leaves out the seed that AES was tuned on."""
    made = []
    for row in rows:
        values = {
            other.sampler: measures
            for other in rows
            if (other.task, other.agent) == (row.task, row.agent) and (measures := _measures(other, is_untouched))
        }
        own = values.get(row.sampler)
        if own is None:
            continue
        cells = tuple(_cell(row, own, name, row.sampler in best_of(values, name)) for name in COLUMNS)
        count = len(row.seeds) - is_untouched
        made.append(Line(row.task, row.agent, row.sampler, count, cells, _note(row)))
    return made


def as_csv(rows: list[Row]) -> str:
    """All numbers, unrounded: all seeds, without the tuned seed, and the paper's."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = ("", "untouched_", "paper_")
    writer.writerow(
        ["task", "agent", "sampler", "seeds", "env_steps", *(kind + name for kind in kinds for name in COLUMNS),
         "paper_is_comparable", "paper_slip"]
    )  # fmt: skip
    for row in rows:
        parts = (row.measures, row.untouched, row.paper.measures if row.paper else None)
        numbers = [getattr(part, name) if part else "" for part in parts for name in COLUMNS]
        slip = row.paper.slip if row.paper else ""
        names = [for_csv(row.task), row.agent, for_csv(row.sampler)]
        writer.writerow([*names, len(row.seeds), row.steps, *numbers, row.is_comparable, slip])
    return text.getvalue()


def as_markdown(made: list[Line], has_paper: bool = True) -> str:
    """A Markdown table. The paper's values are in parentheses, with ≠ if they are not comparable."""
    head = ["task", "agent", "sampler", "seeds", *COLUMNS.values()]
    text = [markdown_row(head), markdown_row("---" for _ in head)]
    for line in made:
        cells = [
            (f"**{cell.text}**" if cell.is_best else cell.text) + (_beside(cell) if has_paper else "")
            for cell in line.cells
        ]
        names = [for_markdown(name) for name in (line.task, line.agent, line.sampler)]
        text.append(markdown_row([*names, str(line.seeds), *cells]))
    return "\n".join(text) + "\n"


def as_latex(made: list[Line]) -> str:
    """A tabular in the paper's layout."""
    head = ["Environment", "Algorithm", "Method", *COLUMNS.values()]
    text = [r"\begin{tabular}{lll" + "r" * len(COLUMNS) + "}", r"\hline", " & ".join(head) + r" \\ \hline"]
    for line in made:
        cells = [rf"\textbf{{{cell.text}}}" if cell.is_best else cell.text for cell in line.cells]
        names = [for_latex(name) for name in (line.task, line.agent.upper(), line.sampler)]
        text.append(" & ".join([*names, *cells]) + r" \\")
    return "\n".join([*text, r"\hline", r"\end{tabular}"]) + "\n"


def number(value: float) -> str:
    """A number rounded for display."""
    if value != value:
        return "–"
    if value and abs(value) < 0.1:
        return f"{value:.2e}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _measures(row: Row, is_untouched: bool) -> Measures | None:
    return row.untouched if is_untouched else row.measures


def _cell(row: Row, own: Measures, name: str, is_best: bool) -> Cell:
    paper = number(getattr(row.paper.measures, name)) if row.paper else ""
    return Cell(number(getattr(own, name)), is_best, paper, row.is_comparable)


def _note(row: Row) -> str:
    if row.paper is None or row.is_comparable:
        return ""
    return row.paper.slip or f"the paper's horizon differs from our {row.steps:,} steps"


def _beside(cell: Cell) -> str:
    return f" ({'' if cell.is_comparable else '≠ '}{cell.paper})" if cell.paper else ""


def markdown_row(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"
