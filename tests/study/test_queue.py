"""Catches studies of a list that disturb each other, are lost when the list is cut off, or are misread."""

import re
import signal
import subprocess
import sys
import time

import pytest

from aes_rl.cli import main
from aes_rl.study.command import run_study
from tests.study.test_local import FAST, argv_of, evaluations


def line_of(name, study):
    words = argv_of(study, name)[1:-2]  # without the command and --retries, which is not a study's
    return " ".join(f"'{word}'" for word in words)


def test_a_list_cut_off_ends_as_its_studies_one_by_one(tiny, longer, tmp_path) -> None:
    """Two groups at a time, of two studies at the end of the first."""
    for name, study in (("first", tiny), ("second", longer)):
        run_study(study, tmp_path / "apart" / name, FAST)
    path = tmp_path / "list.txt"
    path.write_text(f"# two studies\n{line_of('first', tiny)}\n\n{line_of('second', longer)}  # the longer one\n")
    command = [sys.executable, "-m", "aes_rl", "queue", str(tmp_path / "queued"), str(path), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        second = tmp_path / "queued" / "second"
        while process.poll() is None and not list(second.glob("*/*/*/checkpoint")):
            time.sleep(0.05)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "the queue ended before it could be cut off"
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = evaluations(tmp_path / "apart")
    assert len(expected) == 5
    assert evaluations(tmp_path / "queued") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "holds no study; write one per line"),
        ("../elsewhere --seeds 0\n", r"line 1: '../elsewhere' is not the name of a directory within"),
        ("/elsewhere --seeds 0\n", r"line 1: '/elsewhere' is not the name"),
        ("a --seeds 0\na --seeds 1\n", "line 2: there are two studies 'a'"),
        ("a --seeds 0\n./a --seeds 1\n", "line 2: there are two studies 'a'"),
        ("a/b --seeds 0\na//b/ --seeds 1\n", "line 2: there are two studies 'a/b'"),
        ("a --seeds 0\nb --help\n", "line 2: the line prints help and describes no study; remove --help"),
        ("a --tasks 'Hopper-v5\n", "line 1: No closing quotation"),
        ("a --tasks nowhere:Hopper-v5\n", "nowhere:Hopper-v5"),
    ],
)
def test_unusable_lists(text, message, tmp_path, capsys) -> None:
    path = tmp_path / "list.txt"
    path.write_text(text)
    with pytest.raises(SystemExit):
        main(["queue", str(tmp_path / "queued"), str(path)])
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "queued").exists()
