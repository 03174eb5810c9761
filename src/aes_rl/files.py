"""Reading and writing inside a run directory, which may come from a stranger.

Nothing here follows a symbolic link, opens a pipe or a device, or takes more memory than a limit the caller names. Only
what lies inside a run directory is treated so: the path of the directory itself is the user's own.
"""

import csv
import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from aes_rl.errors import UserError

MOST_JSON = 4_000_000
"""Bytes of the largest JSON file that this program writes, with room to spare."""
MOST_TABLE = 1_000_000_000
"""Bytes of the largest table, unpacked. Tables are read row by row, so memory does not grow with it."""

MOST_LINE = 10_000
"""Characters of a table's longest line. A line is held as a whole, and memory would grow with it."""


def is_directory(path: Path) -> bool:
    """Whether there is a directory; a link to one is none."""
    return _kind(path) == "a directory"


def has_directory(path: Path) -> bool:
    """The same; raises where there is something else, such as a link to one."""
    kind = _kind(path)
    if kind not in (None, "a directory"):
        raise UserError(f"{path} is {kind}; in a run directory it must be a directory, so remove it")
    return kind is not None


def is_file(path: Path) -> bool:
    """Whether there is a regular file; raises where there is something else, such as a link."""
    kind = _kind(path)
    if kind not in (None, "a regular file"):
        raise _refused(path, kind)
    return kind is not None


def require_directory(path: Path) -> None:
    """Make the directory if nothing is there; raises where there is something else, such as a link."""
    if not has_directory(path):
        path.mkdir()


def open_to_read(path: Path) -> BinaryIO:
    """A regular file, to read."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def open_to_write(path: Path) -> BinaryIO:
    """A regular file, to change; made where there is none. Nothing else may share it by a hard link."""
    handle = _opened(path, os.O_RDWR | os.O_CREAT)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise UserError(f"{path} shares its contents with another file (a hard link); replace it by a copy")
    return os.fdopen(handle, "r+b")


def read_bytes(path: Path, most: int) -> bytes:
    """All of a regular file of at most so many bytes."""
    with open_to_read(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path} is larger than {most:,} bytes; this program has not written it")
    return content


def read_text(path: Path, most: int) -> str:
    """The same as text."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text ({error.reason} at byte {error.start})") from None


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        values = json.loads(read_text(path, most))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON that can be read ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds {type(values).__name__} where an object is expected")
    return values


def read_rows(path: Path, columns: tuple[str, ...], most: int = MOST_TABLE) -> Iterator[dict[str, str]]:
    """Rows of a table with at least these columns, one at a time; a table whose name ends in .gz is unpacked."""
    with open_to_read(path) as file:
        unpacked = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        lines = io.TextIOWrapper(io.BufferedReader(_Bounded(path, unpacked, most)), newline="")
        try:
            yield from _rows(path, lines, columns)
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
            raise UserError(f"{path} is no table that can be read ({error})") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader finds all of it or what was there before; a link in its place is replaced."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place once it is complete; a link in its place is replaced, never followed."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _rows(path: Path, lines: TextIO, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(_lines(path, lines))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}")
    for row in reader:
        if None in row or None in row.values():
            raise UserError(f"{path} has a row of another length than its head, at line {reader.line_num}")
        yield row


def _lines(path: Path, lines: TextIO) -> Iterator[str]:
    """Lines with their ends; raises where the file was cut within one, which leaves a number that may look whole."""
    while line := lines.readline(MOST_LINE):
        reason = None
        if line in ("\n", "\r\n"):
            reason = "an empty line"
        elif not line.endswith(("\n", "\r")):
            is_long = len(line) == MOST_LINE
            reason = f"a line of more than {MOST_LINE:,} characters" if is_long else "its end is within a line"
        if reason:
            raise UserError(f"{path} is no table that can be read ({reason})")
        yield line


class _Bounded(io.RawIOBase):
    """Passes bytes on until there are more than a limit."""

    def __init__(self, path: Path, source: Any, most: int):
        self._path, self._source, self._most = path, source, most
        self._passed = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._source.read(len(buffer))
        self._passed += len(content)
        if self._passed > self._most:
            raise UserError(
                f"{self._path} is larger than {self._most:,} bytes unpacked; this program has not written it"
            )
        buffer[: len(content)] = content
        return len(content)


def _opened(path: Path, flags: int) -> int:
    kind = _kind(path)
    if kind not in (None, "a regular file"):
        raise _refused(path, kind)
    # Between the look and the opening somebody may have put something else there: a link is not followed, a pipe does
    # not block, and what was opened is looked at again.
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refused(path, "something else by now")
    return handle


def _refused(path: Path, kind: str | None) -> UserError:
    return UserError(f"{path} is {kind}; in a run directory only regular files are read and written, so remove it")


def _kind(path: Path) -> str | None:
    """What is there, in words; None for nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
