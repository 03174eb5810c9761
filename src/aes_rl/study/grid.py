"""The grid of a study, divided into run groups: each is one population in one directory, trained by one process."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aes_rl import checks, extensions, files, paper
from aes_rl.errors import UserError
from aes_rl.options import assigned
from aes_rl.training import PAPER_TASKS, Training, preset, run_files
from aes_rl.training.option_groups import AgentName
from aes_rl.training.presets import Preset
from aes_rl.training.vector import simulator

STUDY_FILE = "study.json"
_OWN_OPTIONS = ("task", "agent", "samplers", "seeds", "env_steps")
"""Training options that the study sets by an option of its own."""


@dataclass(frozen=True)
class Study:
    """One run per combination of task, agent, sampler and seed; the defaults are the paper's experiment."""

    tasks: tuple[str, ...] = PAPER_TASKS
    """Gymnasium tasks."""
    agents: tuple[AgentName, ...] = ("ddpg", "sac")
    """Learners."""
    samplers: tuple[str, ...] = ("uniform", "prioritized", "adaptive")
    """Samplers by name, each with its own options after a colon, such as adaptive:nu=auto,floor=0.1."""
    seeds: tuple[int, ...] = paper.SEEDS
    """One run per seed."""
    preset: Preset = "paper"
    """Values of all other options: the paper's for its task and agent, or the defaults of this library."""
    env_steps: int | None = None
    """Environment steps per run; by default the preset's horizon for the task and agent."""
    set: tuple[str, ...] = ()
    """Further training options for all runs as name=value, such as sac.batch_size=64 or evaluate_every=5000."""
    members_per_population: int = 15
    """Largest number of runs trained together in one process."""

    def __post_init__(self) -> None:
        checks.count("members_per_population", self.members_per_population)
        for kind in ("tasks", "agents", "samplers", "seeds"):
            values = getattr(self, kind)
            if not values:
                raise UserError(f"no {kind} were given; give at least one")
            if len(set(values)) != len(values):
                raise UserError(f"{kind} {values} repeat; give each value once")


class RunGroup(NamedTuple):
    """Runs of one task and agent that are trained as one population."""

    name: str
    """Its directory, relative to the study's."""
    config: Training

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.config.members)


def run_groups(study: Study) -> list[RunGroup]:
    """The grid in groups; a function of the study alone, so that a rerun finds the same directories."""
    seeds_per_group = study.members_per_population // len(study.samplers)
    if seeds_per_group == 0:
        raise UserError(
            f"members_per_population is {study.members_per_population}; it must be at least the number of samplers, "
            f"{len(study.samplers)}"
        )
    groups = []
    for task in study.tasks:
        for agent in study.agents:
            for number, start in enumerate(range(0, len(study.seeds), seeds_per_group)):
                base = preset(study.preset, task, agent)
                seeds = study.seeds[start : start + seeds_per_group]
                try:
                    config = configured(replace(base, samplers=study.samplers, seeds=seeds), study.env_steps, study.set)
                except ValueError as error:
                    raise UserError(f"{task}, {agent}: {error}") from None
                groups.append(RunGroup(f"{task}/{agent}/{number}", config))
    return groups


def configured(base: Training, env_steps: int | None, assignments: Sequence[str]) -> Training:
    """A group's configuration with the study's options; on the CPU it steps its environments in its own process."""
    config = base if env_steps is None else replace(base, env_steps=env_steps)
    for assignment in assignments:
        name = assignment.partition("=")[0].replace("-", "_")
        if name in _OWN_OPTIONS:
            raise UserError(f"set {assignment!r}: {name} has an option of its own; use that option")
        config = assigned(config, assignment)
    if config.workers is None and config.device == "cpu":
        config = replace(config, workers=0)  # the other cores are for the other groups
    return config


def prepare(study: Study, directory: Path) -> list[RunGroup]:
    """Write the study and each group's configuration; raises where the directory holds another study."""
    groups = run_groups(study)
    for group in groups:
        group.config.require_learning()
    for task in study.tasks:
        extensions.trust(task)
        simulator.make(task).close()
    path = directory / STUDY_FILE
    wanted = json.loads(json.dumps(asdict(study)))
    if files.is_file(path):
        run_files.require_same_options(f"{directory} holds another study", files.read_json(path), wanted)
    elif directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study; choose another directory")
    directory.mkdir(parents=True, exist_ok=True)
    files.write_whole(path, json.dumps(wanted, indent=1) + "\n")
    for group in groups:
        own = directory / group.name
        files.require_directories(directory, group.name)
        run_files.write_config(own, run_files.settled(own, group.config))
    return groups
