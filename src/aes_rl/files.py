"""Reading and writing files inside a run directory, which may come from a stranger.

These functions do not follow symbolic links, do not open pipes or devices, and do not read more bytes than the caller's
limit. They are for paths inside a run directory; the path of the directory itself comes from the user.
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
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TextIO

from aes_rl.errors import UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_JSON = 4_000_000
"""Largest size of a JSON file in bytes, well above what this program writes."""
MOST_TABLE = 1_000_000_000
"""Largest uncompressed size of a table in bytes. Tables are read row by row, so memory does not grow with the size."""
MOST_LINE = 10_000
"""Largest length of a table's line in characters; a line is held in memory as a whole."""


def is_directory(path: Path) -> bool:
    """Whether the path is a directory; a link to a directory does not count."""
    return _kind(path) == "a directory"


def has_directory(path: Path) -> bool:
    """Whether the path is a directory; raises if it is anything else that exists, such as a link."""
    kind = _kind(path)
    if kind not in (None, "a directory"):
        raise UserError(f"{path} is {kind}; in a run directory it must be a directory, so remove it")
    return kind is not None


def is_file(path: Path) -> bool:
    """Whether the path is a regular file; raises if it is anything else that exists, such as a link."""
    kind = _kind(path)
    if kind not in (None, "a regular file"):
        raise _rejection(path, kind)
    return kind is not None


def require_directory(path: Path) -> None:
    """Make the directory if nothing is there; raises if something else is, such as a link."""
    if not has_directory(path):
        path.mkdir()


def require_directories(path: Path, below: str) -> None:
    """Make all directories of a relative path below an existing one; raises if one of them is something else."""
    for part in PurePosixPath(below).parts:
        path /= part
        require_directory(path)


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file for reading."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def open_to_write(path: Path) -> BinaryIO:
    """Open a regular file for reading and writing, and create it if missing; raises if it has a second hard link."""
    handle = _opened(path, os.O_RDWR | os.O_CREAT)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise UserError(f"{path} shares its contents with another file (a hard link); replace it by a copy")
    return os.fdopen(handle, "r+b")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_to_read(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path} is larger than {most:,} bytes; no file of this program is")
    return content


def read_text(path: Path, most: int) -> str:
    """The text of a regular file of at most `most` bytes, in UTF-8."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, object]:
    """The object in a JSON file."""
    try:
        values = json.loads(read_text(path, most))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a JSON {type(values).__name__}; it must be an object")
    return values


def read_rows(path: Path, columns: tuple[str, ...], most: int = MOST_TABLE) -> Iterator[dict[str, str]]:
    """Rows of a CSV file with at least these columns, one at a time; a file whose name ends in .gz is decompressed."""
    with open_to_read(path) as file:
        content = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        lines = io.TextIOWrapper(io.BufferedReader(_Bounded(path, content, most)), newline="")
        try:
            yield from _rows(path, lines, columns)
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
            raise UserError(f"{path} is not a valid table ({error})") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically: a reader finds the new content or the old one. An existing link is replaced."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that replaces the old one when the block ends; an existing link is replaced, never followed."""
    if not path.name or path.is_dir():
        raise UserError(f"{path} is a directory; give the name of a file to write")
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
        raise UserError(f"{path} has no column {missing[0]}; it is not a table of this program, or damaged")
    for row in reader:
        if None in row or None in row.values():
            raise UserError(f"{path} has a row of another length than its header, at line {reader.line_num}")
        yield row


def _lines(path: Path, lines: TextIO) -> Iterator[str]:
    """Lines with their line ends; raises at a cut line, whose last number may be cut and still look valid."""
    while line := lines.readline(MOST_LINE):
        reason = None
        if line in ("\n", "\r\n"):
            reason = "an empty line"
        elif not line.endswith(("\n", "\r")):
            is_long = len(line) == MOST_LINE
            reason = f"a line of more than {MOST_LINE:,} characters" if is_long else "the last line is cut"
        if reason:
            raise UserError(f"{path} is not a valid table ({reason})")
        yield line


class _Bounded(io.RawIOBase):
    """A stream that raises once more than `most` bytes have been read."""

    def __init__(self, path: Path, source: BinaryIO | gzip.GzipFile, most: int):
        self._path, self._source, self._most = path, source, most
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        content = self._source.read(len(view))
        self._count += len(content)
        if self._count > self._most:
            raise UserError(
                f"{self._path} is larger than {self._most:,} bytes uncompressed; no table of this program is"
            )
        view[: len(content)] = content
        return len(content)


def _opened(path: Path, flags: int) -> int:
    kind = _kind(path)
    if kind not in (None, "a regular file"):
        raise _rejection(path, kind)
    # The path may change between the check and the opening: links are not followed, a pipe does not block, and the type
    # of the open file is checked again.
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _rejection(path, "no longer a regular file")
    return handle


def _rejection(path: Path, kind: str | None) -> UserError:
    return UserError(f"{path} is {kind}; in a run directory only regular files are read and written, so remove it")


def _kind(path: Path) -> str | None:
    """The type of the file at a path, in words; None if there is none."""
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
