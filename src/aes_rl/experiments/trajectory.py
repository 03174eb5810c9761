"""`aes-rl lab trajectory`: samplers on the policy gradient of the paper's theory, with real trajectories."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from aes_rl.agents.trajectory import Trajectory
from aes_rl.errors import UserError
from aes_rl.lab import theory
from aes_rl.lab.trajectories import Costs, run
from aes_rl.report.figures import LOOK, save, style_of
from aes_rl.report.page import PlainTable, Section, experiment_page, picture
from aes_rl.samplers import Adaptive, FullInformation, Naive, Predictive, Uniform

Runs = dict[tuple[str, str], list[list[Costs]]]
"""Looks of every seed, by setting and sampler."""


@dataclass(frozen=True)
class TrajectoryExperiment:
    """Train the policy gradient of S12 with several samplers; write regret, captured variance, CSV and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/trajectory")
    """Folder to write to."""
    task: str = "CartPole-v1"
    """A Gymnasium task with vector observations and discrete or continuous actions."""
    capacity: int = 64
    """|B|: items of the buffer."""
    updates: int = 1000
    """T."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run each."""
    agent: Trajectory = field(default_factory=Trajectory)
    """Options of the agent."""


def trajectory(words: list[str]) -> None:
    """Train, draw and write."""
    asked = tyro.cli(TrajectoryExperiment, prog="aes-rl lab trajectory", args=words)
    if asked.updates < asked.capacity:
        raise UserError(f"updates are {asked.updates}; give at least the capacity, {asked.capacity}")
    first = list(_looks(asked, Uniform(), True, asked.seeds[0]))
    largest = max(look.largest_norm for look in first)
    jobs = [(setting, name) for setting in ("static", "dynamic") for name in _samplers(setting, largest, asked)]
    runs: Runs = {}
    for setting, name in track(jobs, "training", console=Console(stderr=True)):
        config = _samplers(setting, largest, asked)[name]
        runs[setting, name] = [list(_looks(asked, config, setting == "static", seed)) for seed in asked.seeds]
    asked.output.mkdir(parents=True, exist_ok=True)
    _write(runs, asked.output / "trajectory.csv")
    caption = (
        "Left: regret against the best distribution of every update, buffer never written again. Middle: the same with "
        "a trajectory collected after every update. Right: captured fraction there, a mean over 50 updates."
    )
    figure = picture(save(_draw(runs), asked.output, "trajectory"), caption)
    table = _table(runs)
    lead = (
        f"{asked.task}, {asked.capacity} {asked.agent.items}, {asked.agent.batch_size} drawn an update; G² taken as "
        f"{largest:.3g}."
    )
    page = experiment_page(
        "The policy gradient of the theory", lead, [Section("Regret and variance", [figure])], [table]
    )
    (asked.output / "index.html").write_text(page)
    console = Console()
    for line in (table.columns, *table.lines):
        console.print("  ".join(line))
    console.print(f"the figure, all numbers and a page are in {asked.output}")


def _samplers(setting: str, largest: float, asked: TrajectoryExperiment) -> dict[str, Any]:
    """What to compare; a static buffer has the samplers of the corollaries."""
    if setting == "static":
        floor = theory.exploration(asked.capacity, asked.updates)
        return {
            "uniform": Uniform(),
            "full information": FullInformation(nu=largest, overwrite="fifo"),
            "adaptive": Adaptive(floor=floor, nu=largest, retention=1.0, overwrite="fifo"),
            "predictive": Predictive(refresh_every=20),
        }
    return {
        "uniform": Uniform(),
        "naive": Naive(updates_per_epoch=8, nu=largest),
        "adaptive": Adaptive(nu="auto", forget_every=8, overwrite="fifo"),
        "predictive": Predictive(refresh_every=20),
    }


def _looks(asked: TrajectoryExperiment, config: Any, is_static: bool, seed: int) -> list[Costs]:
    return list(
        run(
            asked.agent,
            asked.task,
            config,
            capacity=asked.capacity,
            updates=asked.updates,
            is_static=is_static,
            seed=seed,
        )
    )


def _regrets(looks: list[Costs]) -> Any:
    """Dynamic regret so far, at every update."""
    return np.cumsum([look.cost - look.least_cost for look in looks])


@mpl.rc_context(LOOK)
def _draw(runs: Runs) -> Figure:
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    shown: dict[str, Any] = {}
    for (setting, name), seeds in runs.items():
        style = {"color": "#56B4E9", "linestyle": "-"} if name == "full information" else style_of(name)
        axis = left if setting == "static" else middle
        (shown[name],) = axis.plot(np.mean([_regrets(looks) for looks in seeds], axis=0), **style)
        if setting == "dynamic":
            captured = np.nanmean([[look.captured_fraction for look in looks] for looks in seeds], axis=0)
            window = min(50, len(captured))
            means = np.convolve(captured, np.full(window, 1 / window), "valid")
            right.plot(np.arange(window - 1, len(captured)), means, **style)
    for axis, title, up in (
        (left, "static buffer", "dynamic regret / |B|²"),
        (middle, "buffer in use", "dynamic regret / |B|²"),
        (right, "buffer in use", "captured fraction"),
    ):
        axis.set_title(title)
        axis.set_xlabel("updates")
        axis.set_ylabel(up)
    right.axhline(0, color="#999999", linewidth=0.8)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5)
    return figure


def _table(runs: Runs) -> PlainTable:
    lines = []
    for (setting, name), seeds in runs.items():
        total = np.mean([_regrets(looks)[-1] for looks in seeds])
        trivial = np.mean([sum(look.uniform_cost - look.least_cost for look in looks) for looks in seeds])
        returns = np.mean([looks[-1].mean_return for looks in seeds])
        lines.append(
            [f"{setting}, {name}", f"{total:.4g}", f"{trivial:.4g}", f"{1 - total / trivial:.0%}", f"{returns:.1f}"]
        )
    columns = ["buffer and sampler", "dynamic regret", "uniform's on the same stream", "removed", "return at the end"]
    note = "Regret is divided by |B|². Samplers lead to different policies, so each has a stream of norms of its own."
    return PlainTable("At the end", columns, lines, note)


def _write(runs: Runs, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("buffer", "sampler", "run", *Costs._fields))
        for (setting, name), seeds in runs.items():
            for number, looks in enumerate(seeds):
                for look in looks:
                    writer.writerow((setting, name, number, look.update, *(f"{value:.5g}" for value in look[1:])))
