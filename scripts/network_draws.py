"""The table of docs/network-draws.md, from results/network-draws: python -m scripts.network_draws."""

import csv
import gzip
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "network-draws.md", ROOT / "results" / "network-draws"
FIRST_STEP = 10_000
"""Of the readings that count."""
NAMES = {
    "predictive": "one draw",
    "predictive:networks=balanced": '`networks="balanced"`',
    "predictive:networks=separate": '`networks="separate"`',
    "predictive:networks=separate,forecast=deviation": '`networks="separate"`, `forecast="deviation"`',
}


def readings(task: str, sampler: str, network: str) -> list[float]:
    """Captured fractions of a network's gradient, over seeds and moments."""
    with gzip.open(RESULTS / task / "metrics.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sampler"] == sampler]
    wanted = f"captured_fraction_{network}"
    return [float(row["value"]) for row in rows if row["metric"] == wanted and int(row["env_step"]) >= FIRST_STEP]


def table() -> list[str]:
    """Mean and lowest reading per sampler, task and network."""
    tasks = ("HalfCheetah-v5", "Hopper-v5")
    rows = ["| | " + " | ".join(f"{task}, {network}" for task in tasks for network in ("critics", "actor")) + " |"]
    rows.append("|---" * 5 + "|")
    for sampler, name in NAMES.items():
        cells = [readings(task, sampler, network) for task in tasks for network in ("critic", "actor")]
        rows.append(f"| {name} | " + " | ".join(f"{sum(c) / len(c):.2f} ({min(c):.2f})" for c in cells) + " |")
    return [row.replace("-0.", "−0.").replace("(-", "(−").replace("| -", "| −") for row in rows]


def with_table(page: str) -> str:
    """The page with its table made anew."""
    begin, end = "<!-- network-draws -->\n", "<!-- /network-draws -->"
    return page[: page.index(begin) + len(begin)] + "\n".join(table()) + "\n" + page[page.index(end) :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
