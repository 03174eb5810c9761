"""`aes-rl lab pack`: the norms that a run recorded, as one file small enough to share."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from aes_rl.lab import trace


@dataclass(frozen=True)
class Pack:
    """Put a run's recorded norms into one file."""

    run: tyro.conf.Positional[Path]
    """Directory of a run trained with --trace-every."""
    output: tyro.conf.Positional[Path]
    """The file to write, such as hopper-sac.safetensors."""
    thinning: int = 1
    """Keep every so many-th of the recorded slots."""
    every: int = 1
    """Keep every so many-th of the recorded moments."""


def pack(words: list[str]) -> None:
    """Write the file and say what is in it."""
    asked = tyro.cli(Pack, prog="aes-rl lab pack", args=words)
    recorded = trace.load(asked.run / "trace").thinned(asked.thinning, asked.every)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    recorded.save(asked.output)
    moments, _, slots = recorded.errors.shape
    Console().print(
        f"{recorded.name}, seed {recorded.facts.seed}: {slots:,} slots, one in {recorded.facts.thinning}, at {moments} "
        f"moments up to {recorded.insertions[-1]:,} insertions; {asked.output.stat().st_size / 1e6:.1f} MB"
    )
