"""The commands train (with a progress display), evaluate and record."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
import tyro
from numpy.typing import ArrayLike
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from aes_rl import checks, extensions
from aes_rl.errors import RunError, UserError
from aes_rl.files import write_whole
from aes_rl.samplers.sampler import Sampler
from aes_rl.training import arguments, checkpoint, memory, run_files
from aes_rl.training.config import Training
from aes_rl.training.evaluation import Evaluator
from aes_rl.training.runner import Interrupted, Runner
from aes_rl.training.state import RunState
from aes_rl.training.vector import simulator

_console = Console()
Device = str | None


@dataclass(frozen=True)
class Evaluate:
    """Run deterministic episodes with a run's newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    episodes: int = 10
    """Episodes per member."""
    number: int = 1_000_000
    """Number of the evaluation, which determines the episodes' seeds; those during training have small numbers."""
    device: Device = None
    """Device of the networks: cpu, cuda or cuda:N; by default the run's if this machine has it, else the CPU."""

    def __post_init__(self) -> None:
        checks.count("episodes", self.episodes)
        checks.index("number", self.number)


@dataclass(frozen=True)
class Record:
    """Record one deterministic episode of a run as a GIF; needs no screen."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    output: Path | None = None
    """File to write; by default episode.gif in the run's directory."""
    member: int = 0
    """Member to record, as numbered in the table of aes-rl evaluate."""
    frames: int = 300
    """Maximum number of frames."""
    number: int = 1_000_000
    """Number of the evaluation, which determines the episode's seed."""
    device: Device = None
    """Device of the networks: cpu, cuda or cuda:N; by default the run's if this machine has it, else the CPU."""

    def __post_init__(self) -> None:
        checks.count("frames", self.frames)
        checks.index("number", self.number)


def train(argv: list[str]) -> None:
    """Train a run in a directory, continue it, or extend it; the options are those of `Training`."""
    directory, config = arguments.parse(argv)
    if run_files.is_run(directory):
        _tell_extension(run_files.parse_config(directory), config)
    run_training(config, directory)


def _tell_extension(begun: Training, config: Training) -> None:
    """Say if a run is extended, and what of it depends on its length."""
    if config.env_steps <= begun.env_steps:
        return
    _console.print(f"extending the run from {begun.env_steps:,} to {config.env_steps:,} environment steps")
    annealed = []
    for name, own in zip(config.samplers, config.sampler_configs[:: len(config.seeds)], strict=True):
        try:
            Sampler([own], capacity=2)  # raises if it needs the length of the run
        except UserError:
            annealed.append(name)
    if annealed:
        _console.print(
            f"{', '.join(annealed)}: options that change over the run follow its new length from here on, so the "
            f"result is not that of an uninterrupted run of {config.env_steps:,} steps"
        )


def run_training(config: Training, directory: Path) -> None:
    """Train to the end with a progress display, then print the scores."""
    runner = Runner(config, directory)
    size = memory.needed(config, runner.state.sizes)
    _console.print(f"members: {len(config.members)}, replay: {memory.gigabytes(size)} on {config.device}")
    if runner.was_resumed:
        _tell(f"continuing {directory} at step {runner.first_step:,}")
    try:
        with _progress(runner) as advance:
            for step in runner.steps():
                advance(step.env_step)
    except Interrupted as stop:
        _tell(f"stopped at step {runner.state.env_step:,}; everything is saved. Continue with")
        _tell(f"  aes-rl train {directory}{extensions.as_arguments()}")
        raise SystemExit(stop.exit_code) from None
    finally:
        runner.close()
    episodes = f"{config.evaluation_episodes} test episode{'s' if config.evaluation_episodes > 1 else ''}"
    _console.print(f"mean return over {episodes} per seed, after {runner.scored_step:,} environment steps:")
    _console.print(_table(config, runner.scores, digits=1))
    half = config.env_steps // 2
    captured = run_files.captured_fractions(directory / "metrics.csv", half)
    if captured:
        _console.print("captured fraction of the removable gradient variance (0: uniform replay, 1: best possible),")
        _console.print(f"mean of the readings after {half:,} environment steps:")
        _console.print(_table(config, {member: fmean(values) for member, values in captured.items()}, digits=2))
    _tell(f"curves, metrics and checkpoint are in {directory}")


def _tell(line: str) -> None:
    """Print a line that contains a path: brackets are no markup, and it is not broken, so that it can be copied."""
    _console.print(line, markup=False, soft_wrap=True)


def evaluate(argv: list[str]) -> None:
    """Print the scores of a run's newest checkpoint."""
    args = tyro.cli(Evaluate, prog="aes-rl evaluate", args=argv)
    with closing(loaded(args.run, args.device)) as run:
        config = run.config
        evaluator = Evaluator(
            config.task, len(config.members), args.episodes, run.workers, max_steps=config.longest_evaluation
        )
        with closing(evaluator):
            score = evaluator.evaluate(run.agent, run.evaluation_seeds(args.number, args.episodes))
    table = Table("member", "sampler", "seed", "mean return", "standard deviation", "mean length")
    for number, (sampler, seed) in enumerate(run.config.members):
        returns, lengths = score.returns[number], score.lengths[number]
        spread = f"{returns.std(ddof=1):.1f}" if args.episodes > 1 else ""
        table.add_row(str(number), sampler, str(seed), f"{returns.mean():.1f}", spread, f"{lengths.mean():.0f}")
    _console.print(table)


def record(argv: list[str]) -> None:
    """Record an episode of one member of a run."""
    import imageio

    args = tyro.cli(Record, prog="aes-rl record", args=argv)
    with closing(loaded(args.run, args.device)) as run:
        if not 0 <= args.member < len(run.config.members):
            raise UserError(f"member is {args.member}; the run has members 0 to {len(run.config.members) - 1}")
        with closing(_make_rendered(run.config.task)) as environment:
            with simulator.exits_as_errors(f"the environment of member {args.member} ended its process in an episode"):
                frames = _frames(run, environment, args)
            milliseconds = 1000 / environment.metadata.get("render_fps", 30)
    output = args.output or args.run / "episode.gif"
    write_whole(output, imageio.mimwrite("<bytes>", frames, format="gif", duration=milliseconds, loop=0))
    _tell(f"{len(frames)} frames in {output}")


def _frames(run: RunState, environment: simulator.Environment, args: Record) -> list[ArrayLike]:
    """Images of one episode of a member."""
    middle, half = simulator.action_scale(environment)
    observation, _ = environment.reset(seed=run.evaluation_seeds(args.number, 1)[args.member][0])
    frames: list[ArrayLike] = []
    for _ in range(args.frames):
        image = environment.render()
        assert isinstance(image, np.ndarray)
        frames.append(image)
        everyone = np.broadcast_to(observation.astype(np.float32), (len(run.config.members), 1, observation.size))
        action = run.agent.act_greedily(torch.from_numpy(everyone.copy()).to(run.device))[args.member, 0]
        observation, _, terminated, truncated, _ = environment.step(middle + half * action.cpu().numpy())
        if terminated or truncated:
            break
    return frames


def _make_rendered(task: str) -> simulator.Environment:
    """An environment that renders without a screen."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        environment = simulator.make(task, render_mode="rgb_array")
    except TypeError as error:
        raise UserError(f"{task} cannot be recorded: it takes no render_mode ({error})") from error
    try:
        environment.reset(seed=0)
        environment.render()
    except Exception as error:  # each graphics library raises its own exceptions
        raise RunError(
            f"{task} could not be rendered ({type(error).__name__}: {error}); install EGL (on Debian libegl1), or "
            "OSMesa (libosmesa6) and set MUJOCO_GL=osmesa"
        ) from error
    return environment


def loaded(directory: Path, device: Device = None) -> RunState:
    """A run at its newest checkpoint, by default on its own device if this machine has it, else on the CPU."""
    config = run_files.read_config(directory)
    if device is None and config.device != "cpu" and not torch.cuda.is_available():
        _console.print(f"the run was trained on {config.device}, which this machine does not have; using the CPU")
        device = "cpu"
    run = RunState(replace(config, workers=0, device=device or config.device))
    try:
        checkpoint.load(run, directory / "checkpoint")
    except BaseException:
        run.close()
        raise
    return run


@contextmanager
def _progress(runner: Runner) -> Iterator[Callable[[int], None]]:
    """A bar with steps per second and time left, and every sampler's newest mean return below it.

    In a log, there is one line per evaluation instead.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, TextColumn("{task.fields[speed]}"), console=_console)
    returns = Text()
    label = f"{runner.config.task} {runner.config.agent}"
    task = bar.add_task(label, total=runner.config.env_steps, completed=runner.first_step, speed="")
    is_log = not _console.is_terminal
    with nullcontext() if is_log else Live(Group(bar, returns), console=_console):
        started, shown, logged = time.monotonic(), 0.0, runner.scored_step

        def advance(env_step: int) -> None:
            nonlocal shown, logged
            now = time.monotonic()
            has_new_score = is_log and runner.scored_step > logged
            if now - shown < 0.2 and not has_new_score and env_step != runner.config.env_steps:
                return
            shown = now
            speed = f"{(env_step - runner.first_step) / max(now - started, 1e-9):.0f} steps/s"
            bar.update(task, completed=env_step, speed=speed)
            returns.plain = _newest_returns(runner)
            if has_new_score:
                logged = runner.scored_step
                steps = f"step {logged:,} of {runner.config.env_steps:,}"
                _console.print(f"{label} {steps}  {speed}  {returns.plain}", soft_wrap=True)

        yield advance


def _newest_returns(runner: Runner) -> str:
    if not runner.scores:
        first = min(runner.config.evaluation_interval, runner.config.env_steps)
        return f"first evaluation at step {first:,}"
    scores = "  ".join(f"{name} {score:.0f}" for name, score in runner.mean_scores().items())
    return f"mean return: {scores}"


def _table(config: Training, values: Mapping[tuple[str, int], float], digits: int) -> Table:
    """One number per sampler and seed, and their means."""
    table = Table("sampler", *(f"seed {seed}" for seed in config.seeds), "mean", title=config.task)
    for sampler in config.samplers:
        own = [values[sampler, seed] for seed in config.seeds]
        table.add_row(sampler, *(f"{value:z.{digits}f}" for value in [*own, fmean(own)]))
    return table
