"""How fast a population trains on a GPU, and where the time goes: the command `aes-rl bench gpu`."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from aes_rl.agents import SAC
from aes_rl.errors import UserError
from aes_rl.machine import cores
from aes_rl.training import loop
from aes_rl.training.capture import Captured
from aes_rl.training.config import Training
from aes_rl.training.run import Run

MIXED = ("uniform", "prioritized", "adaptive")
_STAGES = {
    "act": loop.explore,
    "draw and differentiate": loop.learn,
    "feedback": loop.feed_back,
    "optimise": loop.descend,
    "store": loop.store,
}
_GROUPS = {
    "product": "layers, forward and backward",
    "parameter_gradients": "gradients of the parameters",
    "adam": "optimiser and targets",
    "norms": "per-sample norms",
    **dict.fromkeys(
        ("draw", "uniform", "place", "scatter", "accumulate", "write_", "read_", "sum_blocks", "ndtri"),
        "replay, samplers and noise",
    ),
    "triton_": "losses, weights and checks",
}
"""What a kernel does, by how its name begins or, for the noise, by what it holds."""


@dataclass(frozen=True)
class Bench:
    """Time SAC populations with one update a step: mixed ones, and uniform against adaptive ones taking turns."""

    what: tyro.conf.Positional[Literal["gpu"]]
    """What to time."""
    task: str = "HalfCheetah-v5"
    """The task."""
    members: tuple[int, ...] = (15, 60)
    """Sizes of the populations, multiples of three."""
    capacity: int = 1_000_000
    """Slots of every member."""
    rounds: int = 6
    """Turns of every population; the medians are reported."""
    steps: int = 400
    """Environment steps a turn."""
    tf32: tuple[bool, ...] = (False, True)
    """Precisions of the mixed populations: float32, TensorFloat-32."""
    device: str = "cuda"
    """Where to train."""
    output: Path | None = None
    """Where to write all figures, as JSON."""


class Population:
    """A population in training."""

    def __init__(self, asked: Bench, samplers: tuple[str, ...], members: int, tf32: bool):
        started = time.perf_counter()
        seeds = tuple(range(members // len(samplers)))
        self.run = Run(
            Training(
                task=asked.task,
                samplers=samplers,
                seeds=seeds,
                env_steps=10**9,
                capacity=asked.capacity,
                device=asked.device,
                tf32=tf32,
                sac=SAC(warm_up_steps=1000),
            )
        )
        self._steps = loop.train(self.run)
        self.take(self.run.config.warm_up_steps + 10)
        self.start = time.perf_counter() - started
        """Seconds until it trains, kernels compiled and graphs captured."""
        self.take(1000)  # the machine comes to rest

    def take(self, steps: int) -> float:
        """Seconds that some environment steps take."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            next(self._steps)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def profile(self) -> dict[str, Any]:
        """Microseconds a step of every stage, kernel group and the environments; this ends the population's use."""
        groups, kernels = _kernel_groups(lambda: self.take(50), 50)
        environments = self.run.environments
        action = environments.board.action.copy()
        start = time.perf_counter()
        for _ in range(300):
            environments.send(action)
            environments.receive()
        alone = (time.perf_counter() - start) / 300 * 1e6
        stages = {
            name: _stage_time(Captured(partial(stage, self.run), self.run.device)) for name, stage in _STAGES.items()
        }
        return {
            "stages_us": stages,
            "kernel_groups_us": groups,
            "kernels_a_step": kernels,
            "environments_alone_us": alone,
        }


def bench(words: list[str]) -> None:
    """Print and write how fast populations train."""
    asked = tyro.cli(Bench, prog="aes-rl bench", args=words)
    if not torch.cuda.is_available():
        raise UserError("aes-rl bench gpu needs an NVIDIA GPU that torch can see; there is none")
    for members in asked.members:
        if members % len(MIXED):
            raise UserError(f"members is {members}; it must be a multiple of {len(MIXED)}, one share a sampler")
    rows = [_mixed(asked, members, tf32) for members in asked.members for tf32 in asked.tf32]
    pairs = {members: _pair(asked, members) for members in asked.members}
    figures: dict[str, Any] = {}
    for row in rows:
        suffix = "_tf32" if row["tf32"] else ""
        figures[f"iterations_per_s_{row['members']}{suffix}"] = row["iterations_per_s"]
        figures[f"agent_steps_per_s_{row['members']}{suffix}"] = row["agent_steps_per_s"]
    figures |= {f"adaptive_over_uniform_{members}": pair["adaptive_over_uniform"] for members, pair in pairs.items()}
    figures |= {
        f"adaptive_over_uniform_gpu_time_{members}": pair["adaptive_over_uniform_gpu_time"]
        for members, pair in pairs.items()
    }
    figures["adaptive_over_uniform"] = pairs[asked.members[0]]["adaptive_over_uniform"]
    _print(rows, figures)
    if asked.output is not None:
        machine = {
            "gpu": torch.cuda.get_device_name(),
            "cores": cores(),
            "versions": {name: version(name) for name in ("torch", "triton", "gymnasium", "mujoco")},
            "cuda": torch.version.cuda,
        }
        setting = {"task": asked.task, "capacity": asked.capacity, "rounds": asked.rounds, "steps_a_round": asked.steps}
        result = {**figures, **setting, **machine, "mixed_populations": rows, "uniform_and_adaptive": pairs}
        asked.output.write_text(json.dumps(result, indent=2) + "\n")


def _mixed(asked: Bench, members: int, tf32: bool) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    population = Population(asked, MIXED, members, tf32)
    seconds = statistics.median(population.take(asked.steps) for _ in range(asked.rounds))
    row: dict[str, Any] = {
        "members": members,
        "tf32": tf32,
        "iterations_per_s": asked.steps / seconds,
        "agent_steps_per_s": members * asked.steps / seconds,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "start_s": population.start,
    }
    row |= population.profile()
    iteration = seconds / asked.steps * 1e6
    row["share_lost_to_environments_and_host"] = max(0.0, 1 - busy(row["stages_us"]) / iteration)
    population.run.close()
    return row


def _pair(asked: Bench, members: int) -> dict[str, Any]:
    """Uniform and adaptive populations taking turns, so that a drift of the machine meets both."""
    populations = {name: Population(asked, (name,), members, False) for name in ("uniform", "adaptive")}
    seconds: dict[str, list[float]] = {name: [] for name in populations}
    for _ in range(asked.rounds):
        for name, population in populations.items():
            population.take(20)  # its environments' processes wake up
            seconds[name].append(population.take(asked.steps))
    ratios = [one / other for one, other in zip(seconds["uniform"], seconds["adaptive"], strict=True)]
    result: dict[str, Any] = {"adaptive_over_uniform": statistics.median(ratios)}
    for name, population in populations.items():
        result[name] = {"iterations_per_s": asked.steps / statistics.median(seconds[name]), **population.profile()}
        population.run.close()
    times = [busy(result[name]["stages_us"]) for name in populations]
    result["adaptive_over_uniform_gpu_time"] = times[0] / times[1]
    return result


def busy(stages: dict[str, float]) -> float:
    """Microseconds a step that the GPU works; feedback and storing go on beside the optimiser."""
    beside = max(stages["optimise"], stages["feedback"] + stages["store"])
    return stages["act"] + stages["draw and differentiate"] + beside


def _stage_time(stage: Callable[[], Any], calls: int = 100) -> float:
    """Microseconds of a stage on the GPU, by itself."""
    for _ in range(5):
        stage()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        stage()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls * 1e3


def _kernel_groups(work: Callable[[], Any], steps: int) -> tuple[dict[str, float], float]:
    """Microseconds a step by kernel group, and kernels a step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
    kernels = [event for event in profiler.key_averages() if event.device_type.name == "CUDA"]
    groups: dict[str, float] = {}
    for event in kernels:
        name = next((group for start, group in _GROUPS.items() if _fits(event.key, start)), "other")
        groups[name] = groups.get(name, 0.0) + event.self_device_time_total / steps
    return dict(sorted(groups.items(), key=lambda item: -item[1])), sum(event.count for event in kernels) / steps


def _fits(kernel: str, start: str) -> bool:
    return kernel.startswith(start) or (start == "ndtri" and start in kernel)


def _print(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    console = Console()
    table = Table("members", "precision", "iterations/s", "agent-steps/s", "lost to environments and host", "memory")
    for row in rows:
        table.add_row(
            str(row["members"]),
            "TF32" if row["tf32"] else "float32",
            f"{row['iterations_per_s']:,.0f}",
            f"{row['agent_steps_per_s']:,.0f}",
            f"{row['share_lost_to_environments_and_host']:.0%}",
            f"{row['memory_gb']:.1f} GB",
        )
    console.print(table)
    for kind in ("stages_us", "kernel_groups_us"):
        table = Table("µs a step", *(f"{row['members']}, {'TF32' if row['tf32'] else 'float32'}" for row in rows))
        for name in rows[0][kind]:
            table.add_row(name, *(f"{row[kind].get(name, 0):.0f}" for row in rows))
        console.print(table)
    for name, value in figures.items():
        print(f"{name}: {value:.3g}" if value < 10 else f"{name}: {value:,.0f}")
