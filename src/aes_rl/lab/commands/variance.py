"""`aes-rl lab variance`: how much gradient variance each sampler of a run removes."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from aes_rl.agents.agent import Metric
from aes_rl.errors import UserError
from aes_rl.lab.empirical import Comparison, compare
from aes_rl.lab.measure import Reading, measure
from aes_rl.training.command import Device, loaded

_WIDTH = 120
"""Columns that the table needs."""


@dataclass(frozen=True)
class Variance:
    """Measure how much gradient variance each sampler removes in a run's newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    slots: int | None = 20_000
    """Slots to measure, chosen uniformly; None measures all of them."""
    noise_samples: int = 4
    """Samples of the update's noise that a slot's expected norm is averaged over; only SAC's update has noise."""
    metric: Metric = "euclidean"
    """The norm of a gradient: Euclidean, or with each parameter scaled as in Adam's step."""
    drawn_pairs: int = 0
    """Pairs of batches to draw and differentiate, to compare their empirical variance with the formula's, which is
    then computed from all live slots."""
    device: Device = None
    """Where to measure: cpu, cuda or cuda:N; by default the run's own device if this machine has it, else the CPU."""


def variance(argv: list[str]) -> None:
    """Print a reading per member."""
    args = tyro.cli(Variance, prog="aes-rl lab variance", args=argv)
    if args.drawn_pairs and args.metric != "euclidean":
        raise UserError(f"drawn_pairs compares in the euclidean metric; metric is {args.metric!r}")
    with closing(loaded(args.run, args.device)) as run:
        batch_size = run.config.agent_config.batch_size
        readings = measure(run.agent, run.replay, batch_size, args.slots, args.noise_samples, args.metric)
        pairs = args.drawn_pairs
        comparisons = compare(run.agent, run.replay, batch_size, pairs, args.noise_samples) if pairs else []
        live = len(run.replay)
    console = Console(width=max(_WIDTH, Console().width))  # a narrow terminal wraps the lines; names are not cut off
    console.print(_readings_table(run.config.members, readings))
    measured = "all" if args.slots is None or args.slots >= live else f"{args.slots:,} of"
    console.print(
        f"captured: 0 is uniform, 1 the best distribution; from {measured} {live:,} live slots, step {run.env_step:,}, "
        f"batch {batch_size}, {args.metric} metric"
    )
    if comparisons:
        console.print(_comparisons_table(run.config.members, comparisons))


def _readings_table(members: Sequence[tuple[str, int]], readings: list[Reading]) -> Table:
    networks = list(readings[0].by_network)
    table = Table(
        "sampler",
        "seed",
        "captured",
        "95 % interval",
        *networks,
        "ceiling",
        "oracle ratio",
        "effective batch",
        "weights",
    )
    for (sampler, seed), reading in zip(members, readings, strict=True):
        table.add_row(
            sampler,
            str(seed),
            f"{reading.captured_fraction:z.2f}",
            f"{reading.captured_low:z.2f} to {reading.captured_high:z.2f}",
            *(f"{reading.by_network[name]:z.2f}" for name in networks),
            f"{reading.ceiling:z.2f}",
            f"{reading.oracle_ratio:z.2f}",
            f"{reading.effective_batch_size:,.0f}",
            f"{reading.smallest_unbiased_weight:.2g} to {reading.largest_unbiased_weight:.2g}",
        )
    return table


def _comparisons_table(members: Sequence[tuple[str, int]], comparisons: list[Comparison]) -> Table:
    table = Table("sampler", "seed", "variance by the formula", "empirical", "95 % interval", "empirical / formula")
    for (sampler, seed), found in zip(members, comparisons, strict=True):
        interval = f"{found.low:.4g} to {found.high:.4g}"
        ratio = f"{found.empirical / found.formula:.3f}"
        table.add_row(sampler, str(seed), f"{found.formula:.4g}", f"{found.empirical:.4g}", interval, ratio)
    return table
