"""The script that tells whether two versions of MuJoCo have the same tasks; one version must be the same as itself."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "dynamics.py"


def apart(text):
    """The share of states that differ, by task."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {task: share for task, share, *_ in rows}


def test_margins_change_the_tasks_that_have_them(tmp_path, capsys) -> None:
    script = runpy.run_path(str(SCRIPT))
    first, again, halved = (tmp_path / name for name in ("first.npz", "again.npz", "halved.npz"))
    script["step"](first)
    script["step"](again, first)
    script["step"](halved, first, 0.5)
    script["compare"](first, again)
    assert set(apart(capsys.readouterr().out).values()) == {"0%"}
    script["compare"](first, halved)
    changed = {task for task, share in apart(capsys.readouterr().out).items() if share != "0%"}
    assert changed == {"Hopper", "Ant", "Humanoid"}


def test_other_states_are_not_compared(tmp_path) -> None:
    script = runpy.run_path(str(SCRIPT))
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    script["step"](first)
    script["_played"].__globals__["STEPS"] = 5
    script["step"](second)
    with pytest.raises(SystemExit, match="begin with other states"):
        script["compare"](first, second)
