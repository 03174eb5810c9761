"""`python -m tests.fuzz RUNS`: give mutated run directories to every command that reads one, and list the failures."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.fuzz.campaign import Campaign, Result


def main() -> None:
    """The long form of test_run_directories.py."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("runs", type=Path, help="working directory; the last mutant stays there")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first mutant; the next have the next seeds")
    parser.add_argument("--count", type=int, default=1000, help="number of mutants")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    args.runs.mkdir(parents=True, exist_ok=True)
    results = []
    with Campaign(args.runs) as campaign:
        for seed in track(range(args.seed, args.seed + args.count), "mutants", console=console):
            results.append(campaign.run(seed))
            if results[-1].violations:
                console.print(str(results[-1]), markup=False, soft_wrap=True, highlight=False)
    console.print(_table(results))
    broken = [result for result in results if result.violations]
    console.print(f"{len(broken)} of {len(results)} mutants led to a violation")
    raise SystemExit(1 if broken else 0)


def _table(results: list[Result]) -> Table:
    """Kinds of mutations by outcome; a mutant with several mutations is in several rows."""
    cells = Counter((kind, result.outcome) for result in results for kind in dict.fromkeys(result.kinds))
    usual = ["accepted", "rejected", "stopped"]
    outcomes = [*usual, *sorted({outcome for _, outcome in cells} - set(usual))]
    table = Table("mutation", *outcomes)
    for kind in sorted({kind for kind, _ in cells}):
        table.add_row(kind, *(str(cells[kind, outcome] or "") for outcome in outcomes))
    for command in sorted({result.command for result in results}):
        own = Counter(result.outcome for result in results if result.command == command)
        table.add_row(f"[bold]{command}[/]", *(str(own[outcome] or "") for outcome in outcomes))
    return table


if __name__ == "__main__":
    main()
