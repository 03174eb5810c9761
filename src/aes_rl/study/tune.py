"""The command `aes-rl tune`: the paper's protocol, a search for AES's parameters on one seed."""

import csv
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from aes_rl import checks, extensions, files, paper
from aes_rl.errors import RunError, UserError
from aes_rl.study.command import Execution, execute_shown, executor_of, run_study
from aes_rl.study.grid import AgentName, Population, Study, configured
from aes_rl.training import Training, preset, run_files
from aes_rl.training.presets import Preset
from aes_rl.training.run_files import is_finished

_console = Console()
_SEARCHED = ("floor", "nu", "retention", "forget_every")
"""Options of AES."""


@dataclass(frozen=True)
class Tune:
    """Search AES's κ, ν, ϱ and M on one seed, then compare with the best over all seeds; reruns continue."""

    directory: tyro.conf.Positional[Path]
    """Where trials and the comparison go."""
    task: str = "HalfCheetah-v5"
    """The task to tune on."""
    agent: AgentName = "sac"
    """The learner."""
    trials: int = 30
    """Parameter settings to try; a rerun with a larger number adds to them."""
    seed: int = paper.TUNED_SEED
    """The seed of every trial."""
    seeds: tuple[int, ...] = paper.SEEDS
    """Seeds of the comparison that follows; the report also shows those that were not tuned on."""
    preset: Preset = "paper"
    """Where every other option starts from."""
    env_steps: int | None = None
    """Environment steps of every run; by default the preset's."""
    set: tuple[str, ...] = ()
    """Further training options as name=value."""
    compare: bool = True
    """Whether to run the comparison after the search."""
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)

    def __post_init__(self) -> None:
        checks.count("trials", self.trials)


def tune(words: list[str]) -> None:
    """Search, say what was best, and compare."""
    run_search(tyro.cli(Tune, prog="aes-rl tune", args=words))


def run_search(asked: Tune) -> dict[str, Any]:
    """The best parameters found, by their option's name."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("tuning needs Optuna; pip install 'aes-rl[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions: dict[str, Any] = {
        "floor": optuna.distributions.FloatDistribution(0.02, 0.5),
        "nu": optuna.distributions.FloatDistribution(1.0, 1e6, log=True),
        "retention": optuna.distributions.FloatDistribution(0.1, 0.99),
        "forget_every": optuna.distributions.IntDistribution(30, 10_000, log=True),
    }
    search = optuna.create_study(direction="maximize")
    extensions.trust(asked.task)
    untuned = _untuned(asked)
    untuned.require_learning()
    executor = executor_of(asked.execution, untuned.device)
    at_once = min(executor.most_jobs, 8)
    try:
        for start in range(0, asked.trials, at_once):
            numbers = range(start, min(start + at_once, asked.trials))
            # Seeded anew for every batch, or a rerun would suggest its first trials again.
            search.sampler = optuna.samplers.TPESampler(seed=asked.seed + 1000 * (start + 1))
            batch = [_trial(asked, number, lambda: search.ask(distributions).params) for number in numbers]
            execute_shown(batch, asked.directory, executor, asked.execution.retries)
            for population in batch:
                own = asked.directory / population.name
                if is_finished(own):
                    params = {name: getattr(population.config.sampler.adaptive, name) for name in distributions}
                    made = optuna.create_trial(params=params, distributions=distributions, value=_score(own))
                    search.add_trial(made)
    finally:
        executor.close()
    if not [trial for trial in search.trials if trial.value is not None]:
        raise RunError(f"no trial finished; see {asked.directory / 'trials'}")
    best: dict[str, Any] = search.best_trial.params
    files.write_whole(asked.directory / "best.json", json.dumps({"score": search.best_value, **best}, indent=1) + "\n")
    _console.print(f"best of {asked.trials} trials on seed {asked.seed}: {search.best_value:.1f} with {best}")
    if asked.compare:
        settings = tuple(f"sampler.adaptive.{name}={value}" for name, value in best.items())
        study = Study((asked.task,), (asked.agent,), seeds=asked.seeds, preset=asked.preset, env_steps=asked.env_steps,
                      set=(*asked.set, "sampler.adaptive.retention_end=null", *settings))  # fmt: skip
        run_study(study, asked.directory / "comparison", asked.execution)
    return best


def _trial(asked: Tune, number: int, suggest: Any) -> Population:
    """A trial's population: as it was begun, or with newly suggested parameters."""
    name = f"trials/{number:03d}"
    directory = asked.directory / name
    if files.is_file(directory / "config.json"):
        config = run_files.read_config(directory)
        searched = {name: getattr(config.sampler.adaptive, name) for name in _SEARCHED}
        run_files.check_directory(directory, _tuned(asked, searched))
        return Population(name, config)
    config = _tuned(asked, suggest())
    run_files.write_config(directory, config)
    return Population(name, config)


def _tuned(asked: Tune, searched: dict[str, Any]) -> Training:
    config = _untuned(asked)
    adaptive = replace(config.sampler.adaptive, retention_end=None, **searched)
    return replace(config, sampler=replace(config.sampler, adaptive=adaptive))


def _untuned(asked: Tune) -> Training:
    base = replace(preset(asked.preset, asked.task, asked.agent), samplers=("adaptive",), seeds=(asked.seed,))
    return configured(base, asked.env_steps, asked.set)


def _score(directory: Path) -> float:
    """The mean of the last fifth of a trial's evaluations."""
    with (directory / "evaluations.csv").open(newline="") as handle:
        scores = [float(row["mean_return"]) for row in csv.DictReader(handle)]
    return float(np.mean(scores[-max(1, len(scores) // 5) :]))
