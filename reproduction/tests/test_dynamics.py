"""Catches a comparison of dynamics that misses a difference or reports one where there is none."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "dynamics.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def first(script, tmp_path_factory):
    path = tmp_path_factory.mktemp("dynamics") / "first.npz"
    script["step"](path)
    return path


def test_margins_change_the_tasks_that_have_them(script, first, tmp_path, capsys) -> None:
    again, halved = tmp_path / "again.npz", tmp_path / "halved.npz"
    script["step"](again, first)
    script["step"](halved, first, 0.5)
    script["compare"](first, again, halved)
    header, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()
    )
    assert header[2].endswith("with margins × 0.5")
    assert all(same == "same" for _, same, _ in lines)
    assert {task for task, _, found in lines if found != "same"} == {"Hopper", "Ant", "Humanoid"}


def test_files_with_different_states_are_rejected(script, first, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(script["random_states"].__globals__, "STEPS", 5)
    script["step"](tmp_path / "other.npz")
    with pytest.raises(SystemExit, match="start from different states"):
        script["compare"](first, tmp_path / "other.npz")
