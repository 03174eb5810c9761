"""The table of docs/network-draws.md, from results/network-draws: python -m scripts.network_draws."""

import csv
import gzip
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "network-draws.md", ROOT / "results" / "network-draws"
FIRST_STEP = 10_000
"""Of the readings that count."""
RUNS = tuple((task, agent) for agent in ("sac", "ddpg") for task in ("HalfCheetah-v5", "Hopper-v5"))
NETWORKS = {"critic": "critics", "actor": "actor"}
NAMES = {
    "predictive": "one draw",
    "predictive:networks=balanced": "balanced",
    "predictive:networks=separate": "separate",
    "predictive:networks=separate,forecast=deviation": "separate, deviation",
}


def readings(task: str, agent: str, sampler: str, network: str) -> list[float]:
    """Captured fractions of a network's gradient, over seeds and moments."""
    with gzip.open(RESULTS / f"{task}-{agent}" / "metrics.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sampler"] == sampler]
    wanted = f"captured_fraction_{network}"
    return [float(row["value"]) for row in rows if row["metric"] == wanted and int(row["env_step"]) >= FIRST_STEP]


def table() -> list[str]:
    """Mean and lowest reading per task, agent, network and sampler."""
    rows = ["| | " + " | ".join(NAMES.values()) + " |", "|---" * (1 + len(NAMES)) + "|"]
    for task, agent in RUNS:
        for network, name in NETWORKS.items():
            cells = [readings(task, agent, sampler, network) for sampler in NAMES]
            numbers = [f"{sum(c) / len(c):.2f} ({min(c):.2f})".replace("-", "−") for c in cells]
            rows.append(f"| {task}, {agent.upper()}, {name} | " + " | ".join(numbers) + " |")
    return rows


def with_table(page: str) -> str:
    """The page with its table made anew."""
    begin, end = "<!-- network-draws -->\n", "<!-- /network-draws -->"
    return page[: page.index(begin) + len(begin)] + "\n".join(table()) + "\n" + page[page.index(end) :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
