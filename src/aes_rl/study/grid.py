"""The grid of a study, packed into populations: one directory, one training run of several members each."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from aes_rl import checks, extensions, files, paper
from aes_rl.errors import UserError
from aes_rl.options import assigned
from aes_rl.training import PAPER_TASKS, Training, preset, run_files
from aes_rl.training.presets import Preset
from aes_rl.training.vector import simulator

AgentName = Literal["sac", "ddpg"]
_OWN_OPTIONS = ("task", "agent", "samplers", "seeds", "env_steps")
"""Options of a run that a study has its own for."""


@dataclass(frozen=True)
class Study:
    """Every combination of task, agent, sampler and seed is one run; the defaults are the paper's experiment."""

    tasks: tuple[str, ...] = PAPER_TASKS
    """Gymnasium tasks."""
    agents: tuple[AgentName, ...] = ("ddpg", "sac")
    """Learners."""
    samplers: tuple[str, ...] = ("uniform", "prioritized", "adaptive")
    """Samplers by name, with options of one alone after a colon, such as adaptive:nu=auto,floor=0.1."""
    seeds: tuple[int, ...] = paper.SEEDS
    """One run for each."""
    preset: Preset = "paper"
    """Where every other option starts from: the paper's for its task and agent, or today's defaults."""
    env_steps: int | None = None
    """Environment steps of every run; by default the preset's horizon for the task and agent."""
    set: tuple[str, ...] = ()
    """Further training options for all runs as name=value, such as sac.batch_size=64 or evaluate_every=5000."""
    members_per_population: int = 15
    """Most runs trained side by side in one process."""

    def __post_init__(self) -> None:
        checks.count("members_per_population", self.members_per_population)
        for kind in ("tasks", "agents", "samplers", "seeds"):
            values = getattr(self, kind)
            if not values:
                raise UserError(f"no {kind} were given; give at least one")
            if len(set(values)) != len(values):
                raise UserError(f"{kind} {values} repeat; give each once")


class Population(NamedTuple):
    """Some runs of one task and agent, trained side by side."""

    name: str
    """Its directory within the study's."""
    config: Training

    @property
    def runs(self) -> int:
        """How many runs it holds."""
        return len(self.config.members)


def populations(study: Study) -> list[Population]:
    """The packed grid; a function of the study alone, so that a rerun finds the same directories."""
    at_once = study.members_per_population // len(study.samplers)
    if at_once == 0:
        raise UserError(
            f"members_per_population is {study.members_per_population}; it must be at least the number of samplers, "
            f"{len(study.samplers)}"
        )
    packed = []
    for task in study.tasks:
        for agent in study.agents:
            for number, start in enumerate(range(0, len(study.seeds), at_once)):
                base = preset(study.preset, task, agent)
                seeds = study.seeds[start : start + at_once]
                try:
                    config = configured(replace(base, samplers=study.samplers, seeds=seeds), study.env_steps, study.set)
                except ValueError as error:
                    raise UserError(f"{task}, {agent}: {error}") from None
                packed.append(Population(f"{task}/{agent}/{number}", config))
    return packed


def configured(base: Training, env_steps: int | None, assignments: Sequence[str]) -> Training:
    """A population's run with the study's options, in one process unless it is on a GPU or options say otherwise."""
    config = base if env_steps is None else replace(base, env_steps=env_steps)
    for assignment in assignments:
        name = assignment.partition("=")[0].replace("-", "_")
        if name in _OWN_OPTIONS:
            raise UserError(f"set {assignment!r}: {name} has an option of its own; use that")
        config = assigned(config, assignment)
    if config.workers is None and config.device == "cpu":
        config = replace(config, workers=0)  # other populations have the other cores
    return config


def prepare(study: Study, directory: Path) -> list[Population]:
    """Write down the study and what each population is to do; raises where the directory holds another study."""
    packed = populations(study)
    for population in packed:
        population.config.require_learning()
    for task in study.tasks:
        extensions.trust(task)
        simulator.make(task).close()
    path = directory / "study.json"
    wanted = json.loads(json.dumps(asdict(study)))
    if files.is_file(path):
        run_files.require_same_options(f"{directory} holds another study", files.read_json(path), wanted)
    elif directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study; choose another directory")
    directory.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, json.dumps(wanted, indent=1) + "\n")
    for population in packed:
        own = directory / population.name
        run_files.check_directory(own, population.config)
        run_files.write_config(own, population.config)
    return packed
