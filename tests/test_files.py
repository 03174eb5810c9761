"""Files of a run directory, which may come from a stranger."""

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from aes_rl import files
from aes_rl.errors import UserError


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside.txt"
    path.write_text("mine")
    return path


@pytest.fixture
def link(tmp_path: Path, outside: Path) -> Path:
    path = tmp_path / "link.json"
    path.symlink_to(outside)
    return path


def test_a_link_is_not_followed(link: Path, outside: Path) -> None:
    for call in (files.open_to_read, files.open_to_write, files.is_file, files.read_json, files.require_directory):
        with pytest.raises(UserError, match="symbolic link"):
            call(link)
    assert outside.read_text() == "mine"


def test_a_link_in_the_place_of_a_new_file_is_replaced(link: Path, outside: Path) -> None:
    link.with_name(".link.json.unfinished").symlink_to(outside)
    files.write_whole(link, "new")
    assert outside.read_text() == "mine"
    assert link.read_text() == "new"
    assert not link.is_symlink()


def test_a_hard_link_is_not_written_through(tmp_path: Path, outside: Path) -> None:
    os.link(outside, tmp_path / "table.csv")
    with pytest.raises(UserError, match="hard link"):
        files.open_to_write(tmp_path / "table.csv")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for call in (files.open_to_read, files.open_to_write, files.is_file):
        with pytest.raises(UserError, match="a pipe"):
            call(tmp_path / "pipe")


def test_an_interrupted_file_is_not_left_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with files.whole_file(tmp_path / "page.html") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[1]", "{", "\ufeff{}", "[" * 100_000, '{"a": ' * 100_000, "1" * 10_000])
def test_json_that_is_no_object_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json"):
        files.read_json(tmp_path / "config.json")


def test_a_file_larger_than_it_can_be_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}" + " " * 100)
    with pytest.raises(UserError, match="larger than 50 bytes"):
        files.read_json(tmp_path / "config.json", most=50)


def rows(path: Path, most: int = files.MOST_TABLE) -> list[dict[str, str]]:
    return list(files.read_rows(path, ("step", "value"), most))


def test_rows_of_a_packed_and_a_plain_table_are_the_same(tmp_path: Path) -> None:
    text = "step,value\n1,2.5\n2,3.5\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    wanted = [{"step": "1", "value": "2.5"}, {"step": "2", "value": "3.5"}]
    assert rows(tmp_path / "a.csv") == rows(tmp_path / "a.csv.gz") == wanted


def test_a_packed_bomb_ends_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"step,value\n" + b"1,2\n" * 100_000))
    with pytest.raises(UserError, match="larger than 1,000 bytes"):
        rows(tmp_path / "a.csv.gz", most=1000)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"step\n1\n"),
        ("a.csv", b""),
        ("a.csv", b"step,value\n1\n"),
        ("a.csv", b"step,value\n1,2,3\n"),
        ("a.csv", b"step,value\n1,\xff\xfe\n"),
        ("a.csv", b"step,value\n1," + b"9" * 200_000 + b"\n"),
        ("a.csv", b"step,value\n1,2"),
        ("a.csv", b"step,value\n\n\n1,2\n"),
        ("a.csv.gz", b"step,value\n1,2\n"),
        ("a.csv.gz", gzip.compress(b"step,value\n" + os.urandom(5000).hex().encode())[:-2000]),
    ],
)
def test_a_damaged_table_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"no column|of another length|not a valid table"):
        rows(tmp_path / name)


def test_an_endless_line_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"step,value\n") + gzip.compress(b"x" * 1_000_000) * 100)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"a line of more than 10,000 characters"):
        rows(tmp_path / "a.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
