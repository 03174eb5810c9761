"""The command `aes-rl queue`: a list of studies, whose run groups share one machine until the last one is finished."""

import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import tyro

from aes_rl import extensions, files
from aes_rl.errors import UserError
from aes_rl.study.command import Execution, require_engine, train_groups
from aes_rl.study.grid import RunGroup, Study, prepare

_MOST_LIST = 1_000_000
"""Largest size of a list in bytes."""


@dataclass(frozen=True)
class Queue:
    """Train all studies of a list, several run groups at a time; the same command resumes a stopped queue."""

    directory: tyro.conf.Positional[Path]
    """Where the studies are: each has a directory in it."""
    list: tyro.conf.Positional[Path]
    """Text file with one study per line: its directory's name, then options of `aes-rl compare`; # begins a comment."""
    execution: Annotated[Execution, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class _Line:
    """One study of a list."""

    name: tyro.conf.Positional[str]
    """Its directory, relative to the queue's."""
    study: Annotated[Study, tyro.conf.arg(name="")]


def queue(argv: list[str]) -> None:
    """Train the studies of a list."""
    default = Queue(tyro.MISSING, tyro.MISSING, Execution())
    args = tyro.cli(Queue, prog="aes-rl queue", args=argv, default=default)
    require_engine(args.execution)
    train_groups(groups_of(read_list(args.list), args.directory), args.directory, args.execution)


def read_list(path: Path) -> dict[str, Study]:
    """The studies of a list by name, in its order."""
    studies: dict[str, Study] = {}
    for number, text in enumerate(files.read_text(path, _MOST_LIST).splitlines(), 1):
        place = f"{path}, line {number}"
        try:
            argv = shlex.split(text, comments=True)
        except ValueError as error:
            raise UserError(f"{place}: {error}") from None
        if not argv:
            continue
        line = _parsed(argv, place)
        for task in line.study.tasks:
            extensions.require_trust(task, place)
        path_of_study = PurePosixPath(line.name)
        if not path_of_study.parts or ".." in path_of_study.parts or line.name.startswith("/"):
            raise UserError(f"{place}: {line.name!r} is not the name of a directory within the queue's")
        name = str(path_of_study)  # "a", "./a" and "a/" are one directory
        if name in studies:
            raise UserError(f"{place}: there are two studies {name!r}; give each a directory of its own")
        studies[name] = line.study
    if not studies:
        raise UserError(f"{path} holds no study; write one per line, such as: hopper --tasks Hopper-v5 --agents sac")
    return studies


def _parsed(argv: list[str], place: str) -> _Line:
    try:
        return tyro.cli(_Line, prog=place, args=argv, default=_Line(tyro.MISSING, Study()))
    except SystemExit as end:
        if end.code:
            raise
        raise UserError(f"{place}: the line prints help and describes no study; remove --help") from None


def groups_of(studies: dict[str, Study], directory: Path) -> list[RunGroup]:
    """All run groups of some studies, with names relative to the queue's directory."""
    return [
        RunGroup(f"{name}/{group.name}", group.config)
        for name, study in studies.items()
        for group in prepare(study, directory / name)
    ]
