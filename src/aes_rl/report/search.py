"""Finds the run directories below a directory."""

import os
from collections.abc import Callable
from pathlib import Path

from aes_rl.report.limits import MOST_DEPTH, MOST_DIRECTORIES, MOST_RUN_DIRECTORIES


def run_directories(directory: Path, note: Callable[[str], None]) -> list[Path]:
    """Directories with a config.json, sorted. Links below the directory are passed to `note` and not followed."""
    found: list[Path] = []
    links: list[Path] = []
    too_deep: list[Path] = []
    waiting, visited = [(directory, 0)], 0
    while waiting and visited < MOST_DIRECTORIES:
        path, depth = waiting.pop()
        visited += 1
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name == "config.json":
                        found.append(path)
                    elif entry.is_symlink():
                        links += [path / entry.name] if entry.is_dir() else []
                    elif entry.is_dir() and depth < MOST_DEPTH:
                        waiting.append((path / entry.name, depth + 1))
                    elif entry.is_dir():
                        too_deep.append(path / entry.name)
        except OSError as error:
            note(f"{path} could not be searched ({error.strerror})")
    if waiting:
        note(f"{directory} has more than {MOST_DIRECTORIES:,} directories, and not all are searched; give one below it")
    if links:
        note(f"{_such_as(links)}: symbolic links to directories are not followed; report what they point to by itself")
    if too_deep:
        note(f"{_such_as(too_deep)}: more than {MOST_DEPTH} levels below is not searched; give a directory below it")
    found.sort(key=lambda path: path / "config.json")
    if len(found) > MOST_RUN_DIRECTORIES:
        note(
            f"{directory} has {len(found):,} directories with a run, and the first {MOST_RUN_DIRECTORIES:,} are read; "
            "report fewer at a time"
        )
    return found[:MOST_RUN_DIRECTORIES]


def _such_as(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"
