"""Simulations of samplers on recorded problems, side by side on all cores."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track

from aes_rl import checks, extensions
from aes_rl.lab.score import Point, score_of
from aes_rl.lab.trace import Trace
from aes_rl.machine import cores


class Simulation(NamedTuple):
    """What to simulate."""

    config: Any
    problem: Trace
    batch_size: int


def simulate(simulations: Sequence[Simulation], workers: int | None = None) -> list[list[Point]]:
    """Captured fractions in every simulation, with a progress bar; by default with one process a core.

    The numbers do not depend on how many processes there are.
    """
    if workers is not None:
        checks.count("workers", workers)
    count = min(workers or cores(), len(simulations))
    console = Console(stderr=True)
    if count <= 1:
        return [_points(simulation) for simulation in track(simulations, "simulating", console=console)]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_prepare)
    try:
        under_way = pool.map(_points, simulations)
        return list(track(under_way, "simulating", total=len(simulations), console=console))
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    torch.set_num_threads(1)
    extensions.load()


def _points(simulation: Simulation) -> list[Point]:
    return score_of(simulation.config, simulation.problem, simulation.batch_size)
