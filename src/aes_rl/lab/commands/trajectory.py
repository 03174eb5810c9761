"""`aes-rl lab trajectory`: compares samplers on the policy gradient of the paper's theory, in a Gymnasium task."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from aes_rl.agents.trajectory import Trajectory
from aes_rl.errors import UserError
from aes_rl.lab import theory
from aes_rl.lab.trajectory import Costs, run
from aes_rl.report.figures import LOOK, save, style_of
from aes_rl.report.page import PlainTable, Section, experiment_page, picture
from aes_rl.samplers import Adaptive, FullInformation, Naive, Predictive, Uniform
from aes_rl.samplers.rule import SamplerConfig

Runs = dict[tuple[str, str], list[list[Costs]]]
"""Costs [seeds][updates], by setting ("static" or "dynamic" buffer) and sampler."""


@dataclass(frozen=True)
class TrajectoryExperiment:
    """Train with the policy gradient of the paper's theory and several samplers; write a figure, values and a page."""

    output: tyro.conf.Positional[Path] = Path("lab/trajectory")
    """Directory to write to."""
    task: str = "CartPole-v1"
    """A Gymnasium task with vector observations and discrete or continuous actions."""
    capacity: int = 64
    """|B|: items in the buffer."""
    updates: int = 1000
    """T: updates per run."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run per sampler, setting of the buffer (static or dynamic) and seed."""
    agent: Trajectory = field(default_factory=Trajectory)
    """Options of the agent."""


def trajectory(argv: list[str]) -> None:
    """Train with every sampler, then write the figure, the values and the page."""
    args = tyro.cli(TrajectoryExperiment, prog="aes-rl lab trajectory", args=argv)
    if args.updates < args.capacity:
        raise UserError(f"updates is {args.updates}; it must be at least the capacity, {args.capacity}")
    with_uniform = _costs(args, Uniform(), True, args.seeds[0])
    largest = max(costs.largest_norm for costs in with_uniform)
    jobs = [(setting, name) for setting in ("static", "dynamic") for name in _samplers(setting, largest, args)]
    runs: Runs = {}
    for setting, name in track(jobs, "training", console=Console(stderr=True)):
        config = _samplers(setting, largest, args)[name]
        runs[setting, name] = [_costs(args, config, setting == "static", seed) for seed in args.seeds]
    args.output.mkdir(parents=True, exist_ok=True)
    _write(runs, args.output / "trajectory.csv")
    caption = (
        "Left: dynamic regret (against the best distribution for each update) with a static buffer. Middle: the same "
        "with a new trajectory after every update (dynamic buffer). Right: captured fraction with the dynamic buffer, "
        "averaged over the last 50 updates."
    )
    figure = picture(save(_plot(runs), args.output, "trajectory"), caption)
    table = _table(runs)
    lead = (
        f"{args.task}, {args.capacity} {args.agent.items}, {args.agent.batch_size} draws per update. G² is taken as "
        f"{largest:.3g}, the largest squared gradient norm in a run with uniform sampling and a static buffer."
    )
    page = experiment_page(
        "The policy gradient of the theory", lead, [Section("Regret and variance", [figure])], [table]
    )
    (args.output / "index.html").write_text(page)
    console = Console()
    for line in (table.columns, *table.lines):
        console.print("  ".join(line))
    console.print(f"the figure, all values and a page are in {args.output}")


def _samplers(setting: str, largest: float, args: TrajectoryExperiment) -> dict[str, SamplerConfig]:
    """The samplers to compare. Those with a static buffer include the ones of Corollaries 1 and 2, with ν = G²."""
    if setting == "static":
        floor = theory.exploration(args.capacity, args.updates)
        return {
            "uniform": Uniform(),
            "full information": FullInformation(nu=largest, overwrite="fifo"),
            "adaptive": Adaptive(floor=floor, nu=largest, retention=1.0, overwrite="fifo"),
            "predictive": Predictive(refresh_every=20),
            "predictive, deviations": Predictive(refresh_every=20, forecast="deviation"),
        }
    return {
        "uniform": Uniform(),
        "naive": Naive(updates_per_epoch=8, nu=largest),
        "adaptive": Adaptive(nu="auto", forget_every=8, overwrite="fifo"),
        "predictive": Predictive(refresh_every=20),
        "predictive, deviations": Predictive(refresh_every=20, forecast="deviation"),
    }


def _costs(args: TrajectoryExperiment, config: SamplerConfig, is_static: bool, seed: int) -> list[Costs]:
    return list(
        run(
            args.agent,
            args.task,
            config,
            capacity=args.capacity,
            updates=args.updates,
            is_static=is_static,
            seed=seed,
        )
    )


def _regrets(updates: list[Costs]) -> NDArray[np.float64]:
    """Dynamic regret up to each update, divided by |B|²."""
    return np.cumsum([costs.cost - costs.least_cost for costs in updates])


@mpl.rc_context(LOOK)
def _plot(runs: Runs) -> Figure:
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    handles: dict[str, Artist] = {}
    for (setting, name), seeds in runs.items():
        style = {"color": "#56B4E9", "linestyle": "-"} if name == "full information" else style_of(name)
        axis = left if setting == "static" else middle
        (handles[name],) = axis.plot(np.mean([_regrets(updates) for updates in seeds], axis=0), **style)
        if setting == "dynamic":
            captured = np.nanmean([[costs.captured_fraction for costs in updates] for updates in seeds], axis=0)
            window = min(50, len(captured))
            means = np.convolve(captured, np.full(window, 1 / window), "valid")
            right.plot(np.arange(window - 1, len(captured)), means, **style)
    for axis, title, label in (
        (left, "static buffer", "dynamic regret / |B|²"),
        (middle, "dynamic buffer", "dynamic regret / |B|²"),
        (right, "dynamic buffer", "captured fraction"),
    ):
        axis.set_title(title)
        axis.set_xlabel("updates")
        axis.set_ylabel(label)
    right.axhline(0, color="#999999", linewidth=0.8)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    return figure


def _table(runs: Runs) -> PlainTable:
    lines = []
    for (setting, name), seeds in runs.items():
        total = np.mean([_regrets(updates)[-1] for updates in seeds])
        of_uniform = np.mean([sum(costs.uniform_cost - costs.least_cost for costs in updates) for updates in seeds])
        returns = np.mean([updates[-1].mean_return for updates in seeds])
        lines.append(
            [
                f"{setting}, {name}",
                f"{total:.4g}",
                f"{of_uniform:.4g}",
                f"{1 - total / of_uniform:.0%}",
                f"{returns:.1f}",
            ]
        )
    columns = ["buffer, sampler", "dynamic regret", "regret of uniform sampling", "share removed", "mean return"]
    note = (
        "Regret is divided by |B|². Samplers lead to different policies and so to different norms. Each is compared "
        "with uniform sampling on its own norms. The return is the mean over the trajectories in the buffer; those of "
        "a static buffer are from before the first update."
    )
    return PlainTable("After the last update", columns, lines, note)


def _write(runs: Runs, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("buffer", "sampler", "run", *Costs._fields))
        for (setting, name), seeds in runs.items():
            for number, updates in enumerate(seeds):
                for costs in updates:
                    writer.writerow((setting, name, number, costs.update, *(f"{value:.5g}" for value in costs[1:])))
