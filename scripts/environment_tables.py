"""Tables of docs/decisions/environments.md, from the benchmark: make bench-environments UPDATE=1."""

import json
from pathlib import Path

from scripts import markers

ROOT = Path(__file__).parent.parent
PAGE, RESULT = ROOT / "docs" / "decisions" / "environments.md", ROOT / "benchmarks" / "results" / "environments.json"
LIMIT = "(ours - 1 µs) / mj_step"


def result() -> dict:
    """The figures of the benchmark."""
    return json.loads(RESULT.read_text())


def steps() -> list[str]:
    """Time per environment and step, of ours, MuJoCo's and Gymnasium's."""
    rows = [f"| task | `mj_step` | compiled | Gymnasium | times faster | {LIMIT.replace('ours', 'compiled')} |"]
    rows.append("|---|---|---|---|---|---|")
    for task, own in result()["cpu_us_per_member_and_step"].items():
        times = " | ".join(f"{own[name]:.1f}" for name in ("mj_step", "ours", "gymnasium"))
        rows.append(f"| {task} | {times} | {own['gymnasium / ours']:.2f} | {own[LIMIT]:.2f} |")
    return rows


def groups() -> list[str]:
    """Time of a group's step, and of the slowest group's."""
    rows = ["| task | µs, mean of a group | slowest of twelve | ratio |", "|---|---|---|---|"]
    for task, own in result()["us_per_step_of_all"].items():
        mean, largest = own.values()
        rows.append(f"| {task} | {mean:.0f} | {largest:.0f} | {largest / mean:.2f} |")
    return rows


def with_tables(page: str) -> str:
    """The page with its tables between the markers made anew."""
    return markers.filled(markers.filled(page, "environments", steps()), "uneven", groups())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
