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
    """What one simulation needs: a sampler, a recorded problem and a batch size."""

    config: SamplerConfig
    """The sampler's configuration."""
    problem: RecordedProblem
    batch_size: int


def simulate(simulations: Sequence[Simulation], workers: int | None = None) -> list[list[Point]]:
    """Run all simulations and show a progress bar; return the points of each simulation.

    `workers` is the number of processes, by default one per core. The results do not depend on it.
    """
    if workers is not None:
        checks.count("workers", workers)
    processes = min(workers or cores(), len(simulations))
    console = Console(stderr=True)
    if processes <= 1:
        return [_points(simulation) for simulation in track(simulations, "simulating", console=console)]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_prepare_worker)
    try:
        results = pool.map(_points, simulations)
        return list(track(results, "simulating", total=len(simulations), console=console))
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    torch.set_num_threads(1)
    extensions.load()  # users' modules, which may define the sampler


def _points(simulation: Simulation) -> list[Point]:
    return score_of(simulation.config, simulation.problem, simulation.batch_size)
