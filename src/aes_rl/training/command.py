"""What the commands do: train with a progress display, evaluate and film a finished run."""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from aes_rl import extensions
from aes_rl.errors import RunError, UserError
from aes_rl.files import write_whole
from aes_rl.training import checkpoint, memory, simulator
from aes_rl.training import record as files
from aes_rl.training.config import Training
from aes_rl.training.evaluation import Evaluator
from aes_rl.training.presets import Preset, preset
from aes_rl.training.run import Run
from aes_rl.training.session import Interrupted, Session

_console = Console()
Device = str | None


@dataclass(frozen=True)
class Evaluate:
    """Play deterministic episodes with a run's newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    episodes: int = 10
    """Episodes a member."""
    number: int = 1_000_000
    """Chooses the episodes' seeds; evaluations while training use small numbers."""
    device: Device = None
    """Where the networks are: cpu, cuda or cuda:N; by default the run's own if this machine has it, else the CPU."""


@dataclass(frozen=True)
class Record:
    """Film one deterministic episode of a run as a GIF, without a screen."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    output: Path | None = None
    """The file to write; by default episode.gif in the run's directory."""
    member: int = 0
    """Which member to film, in the order of evaluate's table."""
    frames: int = 300
    """Most frames to film."""
    number: int = 1_000_000
    """Chooses the episode's seed."""
    device: Device = None
    """Where the networks are: cpu, cuda or cuda:N; by default the run's own if this machine has it, else the CPU."""


def train(words: list[str]) -> None:
    """Train a run in a directory, or continue it; the options are those of `Training`."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("directory", nargs="?")
    first.add_argument("--preset", choices=get_args(Preset), default="default")
    first.add_argument("--task", default=Training.task)
    first.add_argument("--agent", choices=("sac", "ddpg"), default=Training.agent)
    known, _ = first.parse_known_args(words)
    if words == [known.directory] and files.is_run(Path(known.directory)):
        _continue(Path(known.directory))
        return

    @dataclass(frozen=True)
    class Train:
        """Train agents that differ in sampler and seed as one population; the directory alone continues a run."""

        directory: tyro.conf.Positional[Path]
        """Where the run's files go."""
        config: Annotated[Training, tyro.conf.arg(name="")]
        preset: Preset = "default"
        """Where the options start from: today's defaults, or the paper's for its eight tasks."""

    start = preset(known.preset, known.task, known.agent)
    asked = tyro.cli(Train, prog="aes-rl train", args=words, default=Train(tyro.MISSING, start, known.preset))
    extensions.trust(asked.config.task)
    run_session(asked.config, asked.directory)


def _continue(directory: Path) -> None:
    """Go on with a run as it was asked for."""
    config = files.read_config(directory)
    if (directory / "evaluations.csv").exists() and not checkpoint.exists(directory / "checkpoint"):
        raise UserError(
            f"{directory} has no checkpoint to continue from; to start its run again from nothing, give the options too"
        )
    run_session(config, directory)


def run_session(config: Training, directory: Path) -> None:
    """Train to the end with a progress display, and print the scores."""
    session = Session(config, directory)
    size = memory.needed(config, session.run.sizes)
    _console.print(f"{len(config.members)} members, replay of {memory.gigabytes(size)} on {config.device}")
    if session.was_resumed:
        _console.print(f"continuing {directory} at step {session.first_step:,}")
    try:
        with _progress(session) as advance:
            for step in session.steps():
                advance(step.env_step)
    except Interrupted as stop:
        _console.print(
            f"stopped at step {session.run.env_step:,}; everything is saved. Continue with\n  aes-rl train {directory}"
            + extensions.as_arguments()
        )
        raise SystemExit(stop.exit_code) from None
    finally:
        session.close()
    _console.print(_scores(session))
    _console.print(f"curves, metrics and checkpoint are in {directory}")


def evaluate(words: list[str]) -> None:
    """Print the scores of a run's newest checkpoint."""
    asked = tyro.cli(Evaluate, prog="aes-rl evaluate", args=words)
    with closing(loaded(asked.run, asked.device)) as run:
        config, episodes = run.config, asked.episodes
        longest = config.longest_evaluation
        made = Evaluator(config.task, len(config.members), episodes, run.workers, longest=longest)
        with closing(made) as evaluator:
            score = evaluator.play(run.agent, run.evaluation_seeds(asked.number, asked.episodes))
    table = Table("member", "sampler", "seed", "mean return", "standard deviation", "mean length")
    for number, (sampler, seed) in enumerate(run.config.members):
        returns, lengths = score.returns[number], score.lengths[number]
        spread = f"{returns.std(ddof=1):.1f}" if asked.episodes > 1 else ""
        table.add_row(str(number), sampler, str(seed), f"{returns.mean():.1f}", spread, f"{lengths.mean():.0f}")
    _console.print(table)


def record(words: list[str]) -> None:
    """Film one member of a run."""
    import imageio

    asked = tyro.cli(Record, prog="aes-rl record", args=words)
    with closing(loaded(asked.run, asked.device)) as run:
        if not 0 <= asked.member < len(run.config.members):
            raise UserError(f"member is {asked.member}; the run has members 0 to {len(run.config.members) - 1}")
        with closing(_filmed(run.config.task)) as environment:
            frames = _frames(run, environment, asked)
            pace = 1000 / environment.metadata.get("render_fps", 30)
    output = asked.output or asked.run / "episode.gif"
    write_whole(output, imageio.mimwrite("<bytes>", frames, format="gif", duration=pace, loop=0))
    _console.print(f"{len(frames)} frames in {output}")


def _frames(run: Run, environment: Any, asked: Record) -> list[Any]:
    """One episode of a member, as pictures."""
    space: Any = environment.action_space
    observation, _ = environment.reset(seed=run.evaluation_seeds(asked.number, 1)[asked.member][0])
    frames: list[Any] = []
    for _ in range(asked.frames):
        frames.append(environment.render())
        everyone = np.broadcast_to(observation.astype(np.float32), (len(run.config.members), 1, observation.size))
        action = run.agent.act_greedily(torch.from_numpy(everyone.copy()).to(run.device))[asked.member, 0]
        scaled = (space.high + space.low) / 2 + (space.high - space.low) / 2 * action.cpu().numpy()
        observation, _, terminated, truncated, _ = environment.step(scaled)
        if terminated or truncated:
            break
    return frames


def _filmed(task: str) -> Any:
    """An environment that renders without a screen."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    environment = simulator.make(task, render_mode="rgb_array")
    try:
        environment.reset(seed=0)
        environment.render()
    except Exception as error:  # every graphics library fails in its own way
        raise RunError(
            f"{task} could not be rendered ({type(error).__name__}: {error}); install EGL (on Debian libegl1), or "
            "OSMesa (libosmesa6) and set MUJOCO_GL=osmesa"
        ) from error
    return environment


def loaded(directory: Path, device: Device = None) -> Run:
    """A run at its newest checkpoint, on a device: its own if this machine has that, else the CPU."""
    config = files.read_config(directory)
    if device is None and config.device != "cpu" and not torch.cuda.is_available():
        _console.print(f"the run was trained on {config.device}, which this machine has not; the CPU is used")
        device = "cpu"
    run = Run(replace(config, workers=0, device=device or config.device))
    try:
        checkpoint.load(run, directory / "checkpoint")
    except BaseException:
        run.close()
        raise
    return run


@contextmanager
def _progress(session: Session) -> Iterator[Any]:
    """A bar with steps a second, time left and the newest score of every sampler; in a log, a line an evaluation."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[status]}"), console=_console) as bar:
        label = f"{session.config.task} {session.config.agent}"
        task = bar.add_task(label, total=session.config.env_steps, completed=session.first_step, status="")
        started, shown, logged = time.monotonic(), 0.0, session.scored_step
        is_log = not _console.is_terminal

        def advance(env_step: int) -> None:
            nonlocal shown, logged
            now = time.monotonic()
            is_news = is_log and session.scored_step > logged
            if now - shown < 0.2 and not is_news and env_step != session.config.env_steps:
                return
            shown = now
            speed = (env_step - session.first_step) / max(now - started, 1e-9)
            scores = "  ".join(f"{name} {score:.0f}" for name, score in session.mean_scores().items())
            status = f"{speed:.0f} steps/s  {scores}"
            bar.update(task, completed=env_step, status=status)
            if is_news:  # nobody sees the bar move
                logged = session.scored_step
                _console.print(f"{label} step {logged:,} of {session.config.env_steps:,}  {status}", soft_wrap=True)

        yield advance


def _scores(session: Session) -> Table:
    table = Table("sampler", *(f"seed {seed}" for seed in session.config.seeds), "mean", title=session.config.task)
    for sampler, mean in session.mean_scores().items():
        own = [session.scores[sampler, seed] for seed in session.config.seeds]
        table.add_row(sampler, *(f"{score:.1f}" for score in own), f"{mean:.1f}")
    return table
