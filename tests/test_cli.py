"""The command as a shell runs it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["--version"], ["train", "--help"]])
def test_output_that_nobody_reads_ends_a_command_quietly(argv: list[str], unbuffered: str) -> None:
    """As behind `| head`: no traceback and no message, and the exit status of a process that SIGPIPE ended."""
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "aes_rl", *argv],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        text=True,
        check=False,
    )
    os.close(writing)
    assert (result.stderr, result.returncode) == ("", 141)
