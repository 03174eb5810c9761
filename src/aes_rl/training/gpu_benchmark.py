"""Training speed of populations on a GPU, by stage and kernel group: the command `aes-rl bench gpu`."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import torch
import tyro
from rich.console import Console
from rich.table import Table

from aes_rl import paper
from aes_rl.agents import SAC
from aes_rl.errors import UserError
from aes_rl.machine import cores
from aes_rl.training import loop
from aes_rl.training.capture import captured
from aes_rl.training.config import Training
from aes_rl.training.state import RunState

MIXED = ("uniform", "prioritized", "adaptive")
_TASK, _BATCH_SIZE = "HalfCheetah-v5", 256
"""Not named in the keys of the result."""
_KERNEL_GROUPS = {
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
"""Purpose of a kernel by the start of its name, or, for the noise, by a part of it."""


@dataclass(frozen=True)
class Bench:
    """Time SAC populations with one update per step: mixed ones, and uniform and adaptive ones in alternation."""

    what: tyro.conf.Positional[Literal["gpu"]]
    """What to time."""
    tasks: tuple[str, ...] = (_TASK,)
    """Tasks."""
    batch_sizes: tuple[int, ...] = (_BATCH_SIZE,)
    """Samples per update and member. Mixed populations are timed in all combinations of task, batch size, members and
    precision; uniform and adaptive ones have the first task and the first batch size."""
    members: tuple[int, ...] = (15, 60)
    """Population sizes, multiples of three."""
    capacity: int = 1_000_000
    """Replay buffer slots per member."""
    rounds: int = 6
    """Timed rounds per population; the medians are reported."""
    steps: int = 400
    """Environment steps per round."""
    tf32: tuple[bool, ...] = (False, True)
    """Whether the mixed populations use TensorFloat-32; each value is timed."""
    device: str = "cuda"
    """Device to train on."""
    output: Path | None = None
    """File for all results, as JSON."""


class Profile(TypedDict):
    """Where the time of a step goes, in microseconds."""

    stages_us: dict[str, float]
    kernel_groups_us: dict[str, float]
    kernels_a_step: float
    environments_alone_us: float


class Case(NamedTuple):
    """What is timed of a mixed population."""

    task: str
    batch_size: int
    members: int
    tf32: bool

    @property
    def key(self) -> str:
        """End of its keys in the result."""
        task = "" if self.task == _TASK else f"_{paper.name_of(self.task).lower()}"
        batch_size = "" if self.batch_size == _BATCH_SIZE else f"_batch_{self.batch_size}"
        return f"{self.members}{'_tf32' if self.tf32 else ''}{task}{batch_size}"


class MixedResult(Profile):
    """Speed of a population with several samplers."""

    task: str
    batch_size: int
    members: int
    tf32: bool
    iterations_per_s: float
    agent_steps_per_s: float
    memory_gb: float
    start_s: float
    share_lost_to_environments_and_host: float


class SingleResult(Profile):
    """Speed of a population with one sampler."""

    iterations_per_s: float


class PairResult(TypedDict):
    """Uniform and adaptive populations of one size, and the ratios of their speeds."""

    adaptive_over_uniform: float
    uniform: SingleResult
    adaptive: SingleResult
    adaptive_over_uniform_gpu_time: float


class BenchmarkRun:
    """A population in training, whose steps are timed."""

    def __init__(self, args: Bench, samplers: tuple[str, ...], case: Case):
        started = time.perf_counter()
        seeds = tuple(range(case.members // len(samplers)))
        self.run = RunState(
            Training(
                task=case.task,
                samplers=samplers,
                seeds=seeds,
                env_steps=10**9,
                capacity=args.capacity,
                device=args.device,
                tf32=case.tf32,
                sac=SAC(warm_up_steps=1000, batch_size=case.batch_size),
            )
        )
        self._steps = loop.train(self.run)
        self.run_steps(self.run.config.warm_up_steps + 10)
        self.start_seconds = time.perf_counter() - started
        """Seconds until it trains, including the compilation of kernels and the capture of graphs."""
        self.run_steps(1000)  # until the speed is steady

    def run_steps(self, steps: int) -> float:
        """Take environment steps; returns the seconds that they took."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self._last_step = next(self._steps)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def profile(self) -> Profile:
        """Microseconds per step of every stage, kernel group and the environments; no more steps can follow."""
        groups, kernels = _kernel_groups(lambda: self.run_steps(50), 50)
        environments = self.run.environments
        action = environments.data.action.copy()
        start = time.perf_counter()
        for _ in range(300):
            environments.send(action)
            environments.receive()
        alone = (time.perf_counter() - start) / 300 * 1e6
        learned = self._last_step.learned
        assert learned is not None
        stages: dict[str, Callable[[], object]] = {
            "act": partial(loop.explore, self.run),
            "draw and differentiate": partial(loop.learn, self.run),
            "feedback": partial(loop.feed_back, self.run, learned),
            "optimise": self.run.agent.descend,
            "store": partial(loop.store, self.run),
        }
        return {
            "stages_us": {name: _stage_time(captured(stage, self.run.device)) for name, stage in stages.items()},
            "kernel_groups_us": groups,
            "kernels_a_step": kernels,
            "environments_alone_us": alone,
        }


def bench(argv: list[str]) -> None:
    """Time populations; print and write the results."""
    args = tyro.cli(Bench, prog="aes-rl bench", args=argv)
    if not torch.cuda.is_available():
        raise UserError("aes-rl bench gpu needs an NVIDIA GPU that torch can see; there is none")
    for members in args.members:
        if members % len(MIXED):
            raise UserError(
                f"members is {members}; it must be a multiple of {len(MIXED)}, so that every sampler has as many"
            )
    rows = {case: _mixed(args, case) for case in cases(args)}
    pairs = {members: _pair(args, members) for members in args.members}
    figures: dict[str, float] = {}
    for case, row in rows.items():
        figures[f"iterations_per_s_{case.key}"] = row["iterations_per_s"]
        figures[f"agent_steps_per_s_{case.key}"] = row["agent_steps_per_s"]
    figures |= {f"adaptive_over_uniform_{members}": pair["adaptive_over_uniform"] for members, pair in pairs.items()}
    figures |= {
        f"adaptive_over_uniform_gpu_time_{members}": pair["adaptive_over_uniform_gpu_time"]
        for members, pair in pairs.items()
    }
    figures["adaptive_over_uniform"] = pairs[args.members[0]]["adaptive_over_uniform"]
    _print(list(rows.values()), figures)
    if args.output is not None:
        machine = {
            "gpu": torch.cuda.get_device_name(),
            "cores": cores(),
            "versions": {name: version(name) for name in ("torch", "triton", "gymnasium", "mujoco")},
            "cuda": torch.version.cuda,
        }
        setting = {"task": args.tasks[0], "capacity": args.capacity, "rounds": args.rounds, "steps_a_round": args.steps}
        result = {**figures, **setting, **machine, "mixed_populations": [*rows.values()], "uniform_and_adaptive": pairs}
        args.output.write_text(json.dumps(result, indent=2) + "\n")


def cases(args: Bench) -> list[Case]:
    """All combinations that the mixed populations are timed in."""
    return [Case(*values) for values in product(args.tasks, args.batch_sizes, args.members, args.tf32)]


def _mixed(args: Bench, case: Case) -> MixedResult:
    torch.cuda.reset_peak_memory_stats()
    population = BenchmarkRun(args, MIXED, case)
    seconds = statistics.median(population.run_steps(args.steps) for _ in range(args.rounds))
    memory_gb = torch.cuda.max_memory_allocated() / 1e9
    profile = population.profile()
    population.run.close()
    iteration = seconds / args.steps * 1e6
    return {
        "task": case.task,
        "batch_size": case.batch_size,
        "members": case.members,
        "tf32": case.tf32,
        "iterations_per_s": args.steps / seconds,
        "agent_steps_per_s": case.members * args.steps / seconds,
        "memory_gb": memory_gb,
        "start_s": population.start_seconds,
        **profile,
        "share_lost_to_environments_and_host": max(0.0, 1 - busy_time(profile["stages_us"]) / iteration),
    }


def _pair(args: Bench, members: int) -> PairResult:
    """Uniform and adaptive populations in alternation, so that a drift of the machine affects both."""
    case = Case(args.tasks[0], args.batch_sizes[0], members, False)
    populations = {name: BenchmarkRun(args, (name,), case) for name in ("uniform", "adaptive")}
    seconds: dict[str, list[float]] = {name: [] for name in populations}
    for _ in range(args.rounds):
        for name, population in populations.items():
            population.run_steps(20)  # wakes up the processes of its environments
            seconds[name].append(population.run_steps(args.steps))
    ratios = [one / other for one, other in zip(seconds["uniform"], seconds["adaptive"], strict=True)]
    alone: dict[str, SingleResult] = {}
    for name, population in populations.items():
        alone[name] = {"iterations_per_s": args.steps / statistics.median(seconds[name]), **population.profile()}
        population.run.close()
    times = {name: busy_time(result["stages_us"]) for name, result in alone.items()}
    return {
        "adaptive_over_uniform": statistics.median(ratios),
        "uniform": alone["uniform"],
        "adaptive": alone["adaptive"],
        "adaptive_over_uniform_gpu_time": times["uniform"] / times["adaptive"],
    }


def busy_time(stages: dict[str, float]) -> float:
    """Microseconds per step that the GPU is busy; feedback and insertion run in parallel with the optimiser."""
    parallel = max(stages["optimise"], stages["feedback"] + stages["store"])
    return stages["act"] + stages["draw and differentiate"] + parallel


def _stage_time(stage: Callable[[], object], calls: int = 100) -> float:
    """Microseconds that one stage alone takes on the GPU."""
    for _ in range(5):
        stage()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        stage()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls * 1e3


def _kernel_groups(work: Callable[[], object], steps: int) -> tuple[dict[str, float], float]:
    """Microseconds per step by kernel group, and kernels per step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
    kernels = [event for event in profiler.key_averages() if event.device_type.name == "CUDA"]
    groups: dict[str, float] = {}
    for event in kernels:
        name = next((group for start, group in _KERNEL_GROUPS.items() if _matches(event.key, start)), "other")
        groups[name] = groups.get(name, 0.0) + event.self_device_time_total / steps
    return dict(sorted(groups.items(), key=lambda item: -item[1])), sum(event.count for event in kernels) / steps


def _matches(kernel: str, start: str) -> bool:
    return kernel.startswith(start) or (start == "ndtri" and start in kernel)


def _print(rows: list[MixedResult], figures: dict[str, float]) -> None:
    console = Console()
    table = Table(
        "task",
        "batch",
        "members",
        "precision",
        "iterations/s",
        "agent-steps/s",
        "lost to environments and host",
        "memory",
    )
    for row in rows:
        table.add_row(
            row["task"],
            str(row["batch_size"]),
            str(row["members"]),
            "TF32" if row["tf32"] else "float32",
            f"{row['iterations_per_s']:,.0f}",
            f"{row['agent_steps_per_s']:,.0f}",
            f"{row['share_lost_to_environments_and_host']:.0%}",
            f"{row['memory_gb']:.1f} GB",
        )
    console.print(table)
    keys = [Case(row["task"], row["batch_size"], row["members"], row["tf32"]).key for row in rows]
    for times in ([row["stages_us"] for row in rows], [row["kernel_groups_us"] for row in rows]):
        table = Table("µs per step", *keys)
        for name in times[0]:
            table.add_row(name, *(f"{own.get(name, 0):.0f}" for own in times))
        console.print(table)
    for name, value in figures.items():
        print(f"{name}: {value:.3g}" if value < 10 else f"{name}: {value:,.0f}")
