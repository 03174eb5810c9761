"""A copy of a valid run directory that mutations change."""

import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECRET = "canary-of-the-fuzzer"
"""Content of files outside the run directory; no command may print it."""
MOST_BYTES = 100_000_000
"""Maximum size of a file that the fuzzer itself reads."""
EVIL_MODULES = ("evil_module", "evil_package.module")
"""Modules that write a file when they are imported."""


@dataclass
class Mutant:
    """The copy, the files around it, and the mutations applied to it."""

    seed: int
    command: str
    """The command that will read it."""
    run: Path
    source: Path
    """The valid run that it is a copy of."""
    finished: Path
    """The same run, finished."""
    outside: Path
    """A directory outside the run, which no command may change."""
    bombs: Path
    """Cache of large files, which take long to make."""
    random: Random
    kinds: list[str] = field(default_factory=list)
    """Kinds of the mutations."""
    changes: list[str] = field(default_factory=list)
    """Descriptions of the mutations."""
    has_new_checksum: bool = False
    """Whether the checksum was updated after the tensors were changed."""

    def paths(self) -> list[Path]:
        """All paths in the directory that the command may read."""
        return sorted(path for path in self.run.rglob("*") if self.may_be_read(path))

    def files(self) -> list[Path]:
        """The regular files among them, without bombs."""
        files = [path for path in self.paths() if path.is_file() and not path.is_symlink()]
        return [path for path in files if path.stat().st_size < MOST_BYTES]

    def may_be_read(self, path: Path) -> bool:
        """Whether the command may read a path; a mutation of any other path would have no effect."""
        first = path.relative_to(self.run).parts[0]
        if self.command == "report":
            return first != "checkpoint"
        return self.command == "train" or first in ("config.json", "checkpoint")

    def checkpoints(self) -> list[Path]:
        """Checkpoints, the newest last."""
        return sorted(path for path in (self.run / "checkpoint").glob("[0-9]*") if path.is_dir())

    def new_outside(self, name: str) -> Path:
        """A new path outside the run."""
        return self.outside / f"{len(list(self.outside.iterdir()))}-{name}"

    def text(self, path: Path) -> str:
        """A path in the description of a mutation."""
        return str(path.relative_to(self.run))


def remove(path: Path) -> None:
    """Remove a file, link or directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def evil_source(trace: Path) -> str:
    """Source of a module that writes to the file `trace` when it is imported."""
    return f"with open({str(trace)!r}, 'a') as file:\n    file.write(__name__)\n"


def update_checksum(path: Path, before: bytes) -> None:
    """Replace the file's checksum in the checkpoint by that of its new content, as a forger would."""
    checksums = path.parent / "checksums.json"
    if checksums.is_file() and not checksums.is_symlink() and checksums.stat().st_size < MOST_BYTES:
        old, new = (f"{zlib.crc32(content):08x}".encode() for content in (before, path.read_bytes()))
        checksums.write_bytes(checksums.read_bytes().replace(old, new))
