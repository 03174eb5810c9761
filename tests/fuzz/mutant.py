"""A copy of an honest run directory on its way to becoming a stranger's."""

import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECRET = "canary-of-the-fuzzer"
"""What files outside the run directory hold."""
MOST_BYTES = 100_000_000
"""Of a file that this program itself reads."""
EVIL_MODULES = ("evil_module", "evil_package.module")
"""Modules whose import leaves a trace."""


@dataclass
class Mutant:
    """The copy, what lies around it, and what was done to it."""

    seed: int
    command: str
    """Which command will look at it."""
    run: Path
    honest: Path
    """The run that it is a copy of."""
    whole: Path
    """The same run, never stopped."""
    outside: Path
    """A directory in which nothing may change."""
    bombs: Path
    """Where files that are costly to make are kept."""
    random: Random
    kinds: list[str] = field(default_factory=list)
    """Of the mutations."""
    changes: list[str] = field(default_factory=list)
    """What they did."""
    is_resigned: bool = False
    """Whether the checksum was made to fit what the tensors are now."""

    def there(self) -> list[Path]:
        """What is in the directory and the command may look at."""
        return sorted(path for path in self.run.rglob("*") if self.may_be_read(path))

    def files(self) -> list[Path]:
        """The regular files of it, but for bombs."""
        files = [path for path in self.there() if path.is_file() and not path.is_symlink()]
        return [path for path in files if path.stat().st_size < MOST_BYTES]

    def may_be_read(self, path: Path) -> bool:
        """Whether the command may look at a file; most mutations should be seen."""
        first = path.relative_to(self.run).parts[0]
        if self.command == "report":
            return first != "checkpoint"
        return self.command == "train" or first in ("config.json", "checkpoint")

    def checkpoints(self) -> list[Path]:
        """Checkpoints, the newest last."""
        return sorted(path for path in (self.run / "checkpoint").glob("[0-9]*") if path.is_dir())

    def new_outside(self, name: str) -> Path:
        """A place outside the run that is not taken."""
        return self.outside / f"{len(list(self.outside.iterdir()))}-{name}"

    def text(self, path: Path) -> str:
        """How a path is called in a description."""
        return str(path.relative_to(self.run))


def remove(path: Path) -> None:
    """Remove whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def evil_source(trace: Path) -> str:
    """A module that leaves a trace when it is imported."""
    return f"with open({str(trace)!r}, 'a') as file:\n    file.write(__name__)\n"


def resign(path: Path, before: bytes) -> None:
    """Make the checkpoint's checksum of a file fit what it holds now, as who makes a checkpoint by hand would."""
    checksums = path.parent / "checksums.json"
    if checksums.is_file() and not checksums.is_symlink() and checksums.stat().st_size < MOST_BYTES:
        old, new = (f"{zlib.crc32(content):08x}".encode() for content in (before, path.read_bytes()))
        checksums.write_bytes(checksums.read_bytes().replace(old, new))
