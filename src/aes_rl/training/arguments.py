"""The arguments of `aes-rl train`: options in groups, with the defaults of a preset or of the run to continue."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, TypeVar, get_args

import tyro

from aes_rl import extensions
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import UserError
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.training import checkpoint, run_files
from aes_rl.training.config import Training
from aes_rl.training.option_groups import AgentName, Main, Recording, Resources, Rounds
from aes_rl.training.presets import Preset, preset

Group = TypeVar("Group", Main, Rounds, Recording, Resources)


@dataclass(frozen=True)
class Train:
    """Train agents with different samplers and seeds as one population.

    In the directory of a run, options that are not given are the run's: the directory alone continues it, and a larger
    --env-steps extends it.
    """

    directory: tyro.conf.Positional[Path]
    """Directory for the run's files."""
    main: Annotated[Main, tyro.conf.OmitArgPrefixes]
    rounds: Annotated[Rounds, tyro.conf.OmitArgPrefixes]
    recording: Annotated[Recording, tyro.conf.OmitArgPrefixes]
    resources: Annotated[Resources, tyro.conf.OmitArgPrefixes]
    sac: SAC
    ddpg: DDPG
    sampler: Mapping[str, SamplerConfig]
    preset: Preset = "default"
    """Defaults of the other options: this package's, or the paper's for its eight tasks."""


def parse(argv: list[str]) -> tuple[Path, Training]:
    """The directory and the configuration to train with in it."""
    # The preset decides the defaults of all other options, and the samplers which others there are.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--preset", "--task", "--agent"):
        first.add_argument(option, nargs="?")
    first.add_argument("--samplers", nargs="*")
    typed, _ = first.parse_known_args(argv)
    for option, values in (("preset", get_args(Preset)), ("agent", get_args(AgentName))):
        if getattr(typed, option) not in values:
            setattr(typed, option, None)  # the parser of all options says what is wrong with it
    start = preset(typed.preset or "default", typed.task or Training.task, typed.agent or Training.agent)
    start = replace(start, samplers=tuple(typed.samplers or start.samplers))
    is_path_first = bool(argv) and not argv[0].startswith("-")
    directory = Path(argv[0]) if is_path_first else _parsed(argv, start).directory
    if not run_files.is_run(directory):
        config = _config_of(_parsed(argv, start))
        extensions.trust(config.task)
        return directory, config
    begun = run_files.parse_config(directory)
    if typed.preset is None:
        start = replace(begun, samplers=tuple(typed.samplers or begun.samplers))
    config = _config_of(_parsed(argv, start))
    if typed.task is not None:
        extensions.trust(config.task)
    run_files.require_trust(directory, config)
    has_lost_checkpoint = (directory / "evaluations.csv").exists() and not checkpoint.exists(directory / "checkpoint")
    if has_lost_checkpoint and (len(argv) == 1 or config.env_steps > begun.env_steps):
        raise UserError(f"{directory} has no checkpoint to continue from; to start its run over, give its options too")
    return directory, config


def _parsed(argv: list[str], start: Training) -> Train:
    default = Train(
        tyro.MISSING,
        _part(Main, start),
        _part(Rounds, start),
        _part(Recording, start),
        _part(Resources, start),
        start.sac,
        start.ddpg,
        start.sampler,
    )
    return tyro.cli(Train, prog="aes-rl train", args=argv, default=default)


def _part(kind: type[Group], config: Training) -> Group:
    """One group of a configuration's options."""
    return kind(**{field.name: getattr(config, field.name) for field in fields(kind)})


def _config_of(args: Train) -> Training:
    groups = vars(args.main) | vars(args.rounds) | vars(args.recording) | vars(args.resources)
    return Training(**groups, sac=args.sac, ddpg=args.ddpg, sampler=args.sampler)
