"""`aes-rl lab variance`: how much gradient variance each sampler of a run removes."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from aes_rl.errors import UserError
from aes_rl.lab.drawn import Comparison, compare
from aes_rl.lab.measure import Metric, measure
from aes_rl.training.command import Device, loaded

_WIDTH = 120
"""Columns that the table needs."""


@dataclass(frozen=True)
class Variance:
    """Measure how much gradient variance each sampler removes in a run's newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    slots: int | None = 20_000
    """Slots to look at, chosen uniformly; None looks at all of them."""
    noise_draws: int = 4
    """Draws of the update's noise that the expected norm of a slot is averaged over; SAC has such noise."""
    metric: Metric = "euclidean"
    """How gradients are measured: plainly, or scaled as Adam scales its steps."""
    drawn_pairs: int = 0
    """Pairs of batches to draw and differentiate, to compare their variance with the formula's from every live slot."""
    device: Device = None
    """Where to measure: cpu, cuda or cuda:N; by default the run's own device if this machine has it, else the CPU."""


def variance(words: list[str]) -> None:
    """Print a reading of every member."""
    asked = tyro.cli(Variance, prog="aes-rl lab variance", args=words)
    if asked.drawn_pairs and asked.metric != "euclidean":
        raise UserError(f"drawn_pairs compares in the euclidean metric; metric is {asked.metric!r}")
    with closing(loaded(asked.run, asked.device)) as run:
        batch_size = run.config.agent_config.batch_size
        readings = measure(run.agent, run.replay, batch_size, asked.slots, asked.noise_draws, asked.metric)
        pairs = asked.drawn_pairs
        comparisons = compare(run.agent, run.replay, batch_size, pairs, asked.noise_draws) if pairs else []
        live = len(run.replay)
    networks = list(readings[0].by_network)
    table = Table(
        "sampler",
        "seed",
        "captured",
        "95 % interval",
        *networks,
        "ceiling",
        "oracle ratio",
        "worth a batch of",
        "weights",
    )
    for (sampler, seed), reading in zip(run.config.members, readings, strict=True):
        table.add_row(
            sampler,
            str(seed),
            f"{reading.captured_fraction:.2f}",
            f"{reading.captured_low:.2f} to {reading.captured_high:.2f}",
            *(f"{reading.by_network[name]:.2f}" for name in networks),
            f"{reading.ceiling:.2f}",
            f"{reading.oracle_ratio:.2f}",
            f"{reading.effective_batch_size:,.0f}",
            f"{reading.smallest_unbiased_weight:.2g} to {reading.largest_unbiased_weight:.2g}",
        )
    console = Console(width=max(_WIDTH, Console().width))  # better wrapped by the terminal than names cut off
    console.print(table)
    looked = "all" if asked.slots is None or asked.slots >= live else f"{asked.slots:,} of"
    console.print(
        f"captured: 0 is uniform, 1 the best distribution; from {looked} {live:,} live slots, step {run.env_step:,}, "
        f"batch {batch_size}, {asked.metric} metric"
    )
    if comparisons:
        console.print(_drawn(run.config.members, comparisons))


def _drawn(members: list[tuple[str, int]], comparisons: list[Comparison]) -> Table:
    table = Table("sampler", "seed", "variance by the formula", "drawn", "95 % interval", "drawn / formula")
    for (sampler, seed), found in zip(members, comparisons, strict=True):
        interval = f"{found.low:.4g} to {found.high:.4g}"
        ratio = f"{found.drawn / found.formula:.3f}"
        table.add_row(sampler, str(seed), f"{found.formula:.4g}", f"{found.drawn:.4g}", interval, ratio)
    return table
