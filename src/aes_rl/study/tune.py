"""The command `aes-rl tune`: AES's parameters searched on one seed, as in the paper."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from aes_rl import checks, extensions, files, paper
from aes_rl.errors import RunError
from aes_rl.study.command import (
    Execution,
    begun,
    directory_in,
    execute_with_progress,
    executor_of,
    is_typed,
    require_engine,
    run_study,
)
from aes_rl.study.grid import RunGroup, Study, configured
from aes_rl.training import Training, preset, run_files
from aes_rl.training.option_groups import AgentName
from aes_rl.training.presets import Preset
from aes_rl.training.run_files import is_finished

_console = Console()
_SEARCH_FILE = "tune.json"
_SEARCHED = ("floor", "nu", "retention", "forget_every")
"""The options of AES that are searched."""


@dataclass(frozen=True)
class Search:
    """What is searched; a directory holds one search."""

    task: str = "HalfCheetah-v5"
    """The task to tune on."""
    agent: AgentName = "sac"
    """The learner."""
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
    trials: int = 30
    """Number of parameter settings to try; a rerun with a larger number adds trials."""
    compare: bool = True
    """Whether to run the comparison after the search."""

    def __post_init__(self) -> None:
        checks.count("trials", self.trials)
        for seed in (self.seed, *self.seeds):
            checks.index("seed", seed)


@dataclass(frozen=True)
class Tune:
    """Search AES's κ, ν, ϱ and M on one seed, then compare the best values over all seeds.

    In the directory of a search, options that are not given are the search's: the directory alone resumes it.
    """

    directory: tyro.conf.Positional[Path]
    """Directory of the trials and the comparison."""
    search: Annotated[Search, tyro.conf.arg(name="")] = field(default_factory=Search)
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)


def tune(argv: list[str]) -> None:
    """Search, print the best parameters, and compare."""

    def parsed(search: Search) -> Tune:
        return tyro.cli(Tune, prog="aes-rl tune", args=argv, default=Tune(tyro.MISSING, search))

    path = directory_in(argv, lambda: parsed(Search()).directory) / _SEARCH_FILE
    args = parsed(begun(Search, path) or Search())
    if not is_typed("--task", argv):
        extensions.require_trust(args.search.task, str(path))
    run_search(args)


def run_search(args: Tune) -> dict[str, float]:
    """The best parameters, by option name."""
    extensions.require_extra("tune", "optuna")
    require_engine(args.execution)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "floor": optuna.distributions.FloatDistribution(0.02, 0.5),
        "nu": optuna.distributions.FloatDistribution(1.0, 1e6, log=True),
        "retention": optuna.distributions.FloatDistribution(0.1, 0.99),
        "forget_every": optuna.distributions.IntDistribution(30, 10_000, log=True),
    }
    trials = optuna.create_study(direction="maximize")
    search = args.search
    extensions.trust(search.task)
    untuned = _untuned(search)
    untuned.require_learning()
    executor = executor_of(args.execution, untuned.device)
    batch_size = min(executor.most_jobs, 8)
    try:
        for start in range(0, search.trials, batch_size):
            numbers = range(start, min(start + batch_size, search.trials))
            # A new seed per batch; otherwise a rerun would suggest its first trials again.
            trials.sampler = optuna.samplers.TPESampler(seed=search.seed + 1000 * (start + 1))
            batch = [_trial(args, number, lambda: trials.ask(distributions).params) for number in numbers]
            # Not before a trial of an older search was checked. The number of trials and the comparison may change.
            files.write_whole(args.directory / _SEARCH_FILE, json.dumps(asdict(search), indent=1) + "\n")
            execute_with_progress(batch, args.directory, executor, args.execution.retries)
            for group in batch:
                own = args.directory / group.name
                if is_finished(own):
                    params = {name: getattr(group.config.sampler["adaptive"], name) for name in distributions}
                    value = _score(own)
                    trials.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))
    finally:
        executor.close()
    if not [trial for trial in trials.trials if trial.value is not None]:
        raise RunError(f"no trial finished; see {args.directory / 'trials'}")
    best: dict[str, float] = trials.best_trial.params
    files.write_whole(args.directory / "best.json", json.dumps({"score": trials.best_value, **best}, indent=1) + "\n")
    _console.print(f"best of {search.trials} trials on seed {search.seed}: {trials.best_value:.1f} with {best}")
    if search.compare:
        settings = tuple(f"sampler.adaptive.{name}={value}" for name, value in best.items())
        study = Study((search.task,), (search.agent,), seeds=search.seeds, preset=search.preset,
                      env_steps=search.env_steps,
                      set=(*search.set, "sampler.adaptive.retention_end=null", *settings))  # fmt: skip
        run_study(study, args.directory / "comparison", args.execution)
    return best


def _trial(args: Tune, number: int, suggest: Callable[[], dict[str, float]]) -> RunGroup:
    """The run group of a trial, read from its directory if it was started before, else with suggested parameters."""
    name = f"trials/{number:03d}"
    directory = args.directory / name
    if files.is_file(directory / "config.json"):
        config = run_files.read_config(directory)
        searched = {name: getattr(config.sampler["adaptive"], name) for name in _SEARCHED}
        return RunGroup(name, run_files.settled(directory, _tuned(args.search, searched)))
    config = _tuned(args.search, suggest())
    args.directory.mkdir(parents=True, exist_ok=True)
    files.require_directories(args.directory, name)
    run_files.write_config(directory, config)
    return RunGroup(name, config)


def _tuned(search: Search, searched: Mapping[str, float]) -> Training:
    config = _untuned(search)
    options: dict[str, float | None] = {"retention_end": None, **searched}
    return replace(config, sampler={**config.sampler, "adaptive": replace(config.sampler["adaptive"], **options)})


def _untuned(search: Search) -> Training:
    base = replace(preset(search.preset, search.task, search.agent), samplers=("adaptive",), seeds=(search.seed,))
    return configured(base, search.env_steps, search.set)


def _score(directory: Path) -> float:
    """The mean return over the last fifth of a trial's evaluations."""
    rows = files.read_rows(directory / "evaluations.csv", ("mean_return",))
    scores = [float(row["mean_return"]) for row in rows]
    return float(np.mean(scores[-max(1, len(scores) // 5) :]))
