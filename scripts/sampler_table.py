"""The table of docs/samplers/index.md: captured fractions on recorded problems, and costs of a training step.

`python -m scripts.sampler_table --simulate` simulates anew (minutes) and writes results/samplers/recorded.csv. Without
the option the table is made from that file and from the figures of `make bench-samplers`.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

from aes_rl import Predictive
from aes_rl.lab.commands.score import parse
from aes_rl.lab.recorded import find
from aes_rl.lab.score import TOLERANCE, Score, score_of, write
from scripts import markers

ROOT = Path(__file__).parent.parent
PAGE, RECORDED = ROOT / "docs" / "samplers" / "index.md", ROOT / "results" / "samplers" / "recorded.csv"
COSTS = ROOT / "benchmarks" / "results" / "samplers.json"
PROBLEMS = ROOT / "results" / "problems"
BATCHES, SLOTS = (256, 64), (100_000, 1_000_000)
NETWORKS = ("critic", "actor")
MEMORY = 8000
"""Memory of the mean, in updates, of forecasts of deviations: one step of a simulation stands for many updates."""
# One draw per network is simulated as two samplers, each of which gets the norms of one network alone.
_FORECASTS = {"predictive": {}} | {
    f"predictive by {forecast}": {"forecast": forecast, "mean_memory": MEMORY}
    for forecast in ("deviation", "mean-and-last")
}
OF_NETWORK = {
    f"{name}, {network}'s draw": Predictive(networks=(network,), **options)
    for name, options in _FORECASTS.items()
    for network in NETWORKS
}
ROWS = {
    "`uniform`": ("", "uniform"),
    "`prioritized`": ("prioritized", "prioritized"),
    "`lap`": ("lap", "lap"),
    "`roer`": ("roer", "roer"),
    "`geometric`": ("geometric", "geometric"),
    "`laber`": ("", "laber"),
    "`la3p`": ("", "la3p"),
    "`last-value`": ("last-value", "last-value"),
    "`adaptive`, the paper's ν": ("adaptive", "adaptive"),
    "`adaptive:nu=auto`": ("adaptive:nu=auto", ""),
    "`predictive`": ("predictive", "predictive"),
    "`predictive`, mean and last": (
        f"predictive:forecast=mean-and-last,mean_memory={MEMORY}",
        "predictive:forecast=mean-and-last",
    ),
    "`predictive`, balanced": ("predictive:networks=balanced", "predictive:networks=balanced"),
    "`predictive`, balanced, deviation": (
        f"predictive:networks=balanced,forecast=deviation,mean_memory={MEMORY}",
        "predictive:networks=balanced,forecast=deviation",
    ),
    "`predictive`, separate": ("predictive, {}'s draw", "predictive:networks=separate"),
    "`predictive`, separate, deviation": (
        "predictive by deviation, {}'s draw",
        "predictive:networks=separate,forecast=deviation",
    ),
    "`predictive`, separate, mean and last": (
        "predictive by mean-and-last, {}'s draw",
        "predictive:networks=separate,forecast=mean-and-last",
    ),
}
"""Name in the table, in the simulations and in the benchmark of costs; empty where there is none."""


def simulate() -> None:
    """Simulate every sampler on the recorded problems and write all moments."""
    scores = []
    names = dict.fromkeys(name for name, _ in ROWS.values() if name and "{}" not in name)
    for problem in find([PROBLEMS]):
        configs = {name: parse(name, problem.facts) for name in names} | OF_NETWORK
        for batch in BATCHES:
            for name, config in configs.items():
                if name not in OF_NETWORK or set(NETWORKS) <= problem.networks.keys():
                    scores.append(Score(problem.name, batch, name, score_of(config, problem, batch)))
    write(scores, RECORDED)


def captured() -> dict[tuple[str, str, int, int], list[float]]:
    """Mean captured fractions on every problem, by sampler, network, batch size and number of live slots."""
    moments: dict[tuple[str, str, int, int, str], list[float]] = defaultdict(list)
    with RECORDED.open(newline="") as file:
        for row in csv.DictReader(file):
            for slots in SLOTS:
                if (1 - TOLERANCE) * slots <= int(row["live_slots"]) <= slots:
                    key = row["sampler"], row["network"], int(row["batch_size"]), slots, row["problem"]
                    moments[key].append(float(row["captured_fraction"]))
    found: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
    for (*key, _), values in moments.items():
        found[tuple(key)].append(sum(values) / len(values))
    return found


def table() -> list[str]:
    """One row per sampler: critics and actor by batch size and slots, then the cost of a training step."""
    fractions, costs = captured(), json.loads(COSTS.read_text())["cost_over_uniform"]
    settings = [(batch, slots) for batch in BATCHES for slots in SLOTS]
    titles = [f"{batch}; {slots:,}" for batch, slots in settings] + [f"cost, {batch}" for batch in BATCHES]
    rows = ["| sampler | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for title, (name, priced) in ROWS.items():
        cells = []
        for setting in settings:
            values = [fractions.get((name.format(network), network, *setting), []) for network in NETWORKS]
            cells.append(" / ".join(f"{sum(v) / len(v):z.2f}" for v in values) if all(values) else "–")
        if title == "`uniform`":
            cells = ["0 / 0"] * len(settings)
        cells += [f"{costs[f'{priced}, batch {batch}']:.2f}" if priced else "–" for batch in BATCHES]
        rows.append(f"| {title} | " + " | ".join(cells).replace("-", "−") + " |")
    return rows


def with_table(page: str) -> str:
    """The page with its table made anew."""
    return markers.filled(page, "sampler-table", table())


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="simulate anew first; minutes")
    if parser.parse_args().simulate:
        simulate()
    PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()
