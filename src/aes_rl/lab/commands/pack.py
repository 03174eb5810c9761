"""`aes-rl lab pack`: recorded norms, as one file that is small enough to share."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from aes_rl import files
from aes_rl.errors import UserError
from aes_rl.lab import recorded


@dataclass(frozen=True)
class Pack:
    """Write recorded norms to one file."""

    source: tyro.conf.Positional[Path]
    """Directory of a run trained with --trace-every, or a packed file to thin further."""
    output: tyro.conf.Positional[Path]
    """The file to write, such as hopper-sac.safetensors."""
    thinning: int = 1
    """k: keep every k-th recorded slot."""
    every: int = 1
    """k: keep every k-th recorded moment."""


def pack(argv: list[str]) -> None:
    """Write the file and describe its content."""
    args = tyro.cli(Pack, prog="aes-rl lab pack", args=argv)
    source = args.source if args.source.is_file() else args.source / "trace"
    if source != args.source and not files.has_directory(source):
        raise UserError(f"{args.source} holds no recorded norms; train with --trace-every")
    problem = recorded.load(source).thinned(args.thinning, args.every)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    problem.save(args.output)
    moments, _, slots = problem.errors.shape
    Console().print(
        f"{problem.name}, seed {problem.facts.seed}: {slots:,} slots, one in {problem.facts.thinning}, at {moments} "
        f"moments up to {problem.insertions[-1]:,} insertions; {args.output.stat().st_size / 1e6:.1f} MB"
    )
