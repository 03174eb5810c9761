"""The command `aes-rl tune`: AES's parameters searched on one seed, as in the paper."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from aes_rl import checks, extensions, files, paper
from aes_rl.errors import RunError, UserError
from aes_rl.study.command import Execution, execute_with_progress, executor_of, run_study
from aes_rl.study.grid import AgentName, RunGroup, Study, configured
from aes_rl.training import Training, preset, run_files
from aes_rl.training.presets import Preset
from aes_rl.training.run_files import is_finished

_console = Console()
_SEARCHED = ("floor", "nu", "retention", "forget_every")
"""The options of AES that are searched."""


@dataclass(frozen=True)
class Tune:
    """Search AES's κ, ν, ϱ and M on one seed, then compare the best values over all seeds; reruns resume."""

    directory: tyro.conf.Positional[Path]
    """Directory of the trials and the comparison."""
    task: str = "HalfCheetah-v5"
    """The task to tune on."""
    agent: AgentName = "sac"
    """The learner."""
    trials: int = 30
    """Number of parameter settings to try; a rerun with a larger number adds trials."""
    seed: int = paper.TUNED_SEED
    """The seed of every trial."""
    seeds: tuple[int, ...] = paper.SEEDS
    """Seeds of the comparison; the report also shows the measures over the seeds that were not tuned on."""
    preset: Preset = "paper"
    """Values of all other options."""
    env_steps: int | None = None
    """Environment steps per run; by default the preset's horizon."""
    set: tuple[str, ...] = ()
    """Further training options as name=value."""
    compare: bool = True
    """Whether to run the comparison after the search."""
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)

    def __post_init__(self) -> None:
        checks.count("trials", self.trials)


def tune(argv: list[str]) -> None:
    """Search, print the best parameters, and compare."""
    run_search(tyro.cli(Tune, prog="aes-rl tune", args=argv))


def run_search(args: Tune) -> dict[str, float]:
    """The best parameters, by option name."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("tuning needs Optuna; pip install 'aes-rl[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "floor": optuna.distributions.FloatDistribution(0.02, 0.5),
        "nu": optuna.distributions.FloatDistribution(1.0, 1e6, log=True),
        "retention": optuna.distributions.FloatDistribution(0.1, 0.99),
        "forget_every": optuna.distributions.IntDistribution(30, 10_000, log=True),
    }
    search = optuna.create_study(direction="maximize")
    extensions.trust(args.task)
    untuned = _untuned(args)
    untuned.require_learning()
    executor = executor_of(args.execution, untuned.device)
    batch_size = min(executor.most_jobs, 8)
    try:
        for start in range(0, args.trials, batch_size):
            numbers = range(start, min(start + batch_size, args.trials))
            # A new seed per batch; otherwise a rerun would suggest its first trials again.
            search.sampler = optuna.samplers.TPESampler(seed=args.seed + 1000 * (start + 1))
            batch = [_trial(args, number, lambda: search.ask(distributions).params) for number in numbers]
            execute_with_progress(batch, args.directory, executor, args.execution.retries)
            for group in batch:
                own = args.directory / group.name
                if is_finished(own):
                    params = {name: getattr(group.config.sampler["adaptive"], name) for name in distributions}
                    value = _score(own)
                    search.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))
    finally:
        executor.close()
    if not [trial for trial in search.trials if trial.value is not None]:
        raise RunError(f"no trial finished; see {args.directory / 'trials'}")
    best: dict[str, float] = search.best_trial.params
    files.write_whole(args.directory / "best.json", json.dumps({"score": search.best_value, **best}, indent=1) + "\n")
    _console.print(f"best of {args.trials} trials on seed {args.seed}: {search.best_value:.1f} with {best}")
    if args.compare:
        settings = tuple(f"sampler.adaptive.{name}={value}" for name, value in best.items())
        study = Study((args.task,), (args.agent,), seeds=args.seeds, preset=args.preset, env_steps=args.env_steps,
                      set=(*args.set, "sampler.adaptive.retention_end=null", *settings))  # fmt: skip
        run_study(study, args.directory / "comparison", args.execution)
    return best


def _trial(args: Tune, number: int, suggest: Callable[[], dict[str, float]]) -> RunGroup:
    """The run group of a trial, read from its directory if it was started before, else with suggested parameters."""
    name = f"trials/{number:03d}"
    directory = args.directory / name
    if files.is_file(directory / "config.json"):
        config = run_files.read_config(directory)
        searched = {name: getattr(config.sampler["adaptive"], name) for name in _SEARCHED}
        run_files.check_directory(directory, _tuned(args, searched))
        return RunGroup(name, config)
    config = _tuned(args, suggest())
    run_files.write_config(directory, config)
    return RunGroup(name, config)


def _tuned(args: Tune, searched: Mapping[str, float]) -> Training:
    config = _untuned(args)
    options: dict[str, float | None] = {"retention_end": None, **searched}
    return replace(config, sampler={**config.sampler, "adaptive": replace(config.sampler["adaptive"], **options)})


def _untuned(args: Tune) -> Training:
    base = replace(preset(args.preset, args.task, args.agent), samplers=("adaptive",), seeds=(args.seed,))
    return configured(base, args.env_steps, args.set)


def _score(directory: Path) -> float:
    """The mean return over the last fifth of a trial's evaluations."""
    rows = files.read_rows(directory / "evaluations.csv", ("mean_return",))
    scores = [float(row["mean_return"]) for row in rows]
    return float(np.mean(scores[-max(1, len(scores) // 5) :]))
