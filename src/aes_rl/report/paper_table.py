"""The paper's results table, parsed from its LaTeX source, with its known errors."""

import re
from importlib.resources import files
from typing import NamedTuple

from aes_rl.report.measures import Measures

METHODS = {"Fifo": "uniform", "PriExp": "prioritized", "AES": "adaptive"}
_CELL = re.compile(r"\$\s*(?:\\bold\{)?\s*(-?[\d.]+)(?:e\^\{(-?\d+)\})?\s*\}?\s*\$")


class PaperRow(NamedTuple):
    """One method on one task with one agent."""

    task: str
    agent: str
    sampler: str
    measures: Measures
    slip: str
    """The known error in the row, or an empty string."""


def paper_rows() -> list[PaperRow]:
    """All rows of the table. Task names have no version."""
    rows: list[PaperRow] = []
    task = agent = ""
    for line in files("aes_rl.report").joinpath("paper_table.tex").read_text().splitlines():
        cells = [cell.strip() for cell in line.split(r"\\")[0].split("&")]
        if len(cells) != 8 or cells[2] not in METHODS:
            continue
        task, agent = cells[0] or task, (cells[1] or agent).lower()
        speed, stability, largest, robustness, final = map(_number, cells[3:])
        measures = Measures(speed, stability, largest, robustness, final)
        rows.append(PaperRow(task, agent, METHODS[cells[2]], measures, _slip(task, agent, measures)))
    return rows


def _number(cell: str) -> float:
    match = _CELL.fullmatch(cell)
    if match is None:
        raise ValueError(f"{cell!r} in the paper's table is not a number")
    return float(f"{match[1]}e{match[2] or 0}")


def _slip(task: str, agent: str, measures: Measures) -> str:
    if task == "Reacher" and agent == "sac":
        return "scores are mean rewards per step, and the speeds miss an exponent"
    if measures.max_score == measures.learning_speed:
        return "the max score copies the learning speed"
    if measures.final_performance > measures.max_score:
        return "the final performance exceeds the max score"
    return ""
