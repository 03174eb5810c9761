"""Simulations of samplers on recorded problems, in parallel on all cores."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track

from aes_rl import checks, extensions
from aes_rl.lab.recorded import RecordedProblem
from aes_rl.lab.score import Point, score_of
from aes_rl.machine import cores
from aes_rl.samplers.rule import SamplerConfig


class Simulation(NamedTuple):
    """A sampler on a recorded problem with a batch size."""

    config: SamplerConfig
    """The sampler's configuration."""
    problem: RecordedProblem
    batch_size: int


def simulate(simulations: Sequence[Simulation], workers: int | None = None) -> list[list[Point]]:
    """The points of every simulation, with a progress bar; by default with one process per core.

    The results do not depend on the number of processes.
    """
    if workers is not None:
        checks.count("workers", workers)
    count = min(workers or cores(), len(simulations))
    console = Console(stderr=True)
    if count <= 1:
        return [_points(simulation) for simulation in track(simulations, "simulating", console=console)]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_prepare_worker)
    try:
        results = pool.map(_points, simulations)
        return list(track(results, "simulating", total=len(simulations), console=console))
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    torch.set_num_threads(1)
    extensions.load()


def _points(simulation: Simulation) -> list[Point]:
    return score_of(simulation.config, simulation.problem, simulation.batch_size)
