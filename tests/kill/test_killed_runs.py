"""Runs that are killed and resumed; `python -m tests.kill` kills a hundred times."""

from random import Random

import pytest

from tests.kill.harness import MOMENTS, Harness


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    with Harness(tmp_path_factory.mktemp("killed")) as harness:
        yield harness


@pytest.mark.parametrize("task", ["InvertedPendulum-v5", "Pendulum-v1"])
def test_killed_runs_end_as_if_they_had_not_been(task, harness) -> None:
    """Tables and tensors are the same where the state can be saved; elsewhere every transition is one of the task."""
    random = Random(7)
    harness.begin(task)
    kills = [harness.kill(task, moment, random) for moment in (*MOMENTS, "renamed")]
    assert all(kill.has_hit or kill.ended.code == 0 for kill in kills), harness.explained(task, kills[-1].ended)
    assert sum(kill.has_hit for kill in kills) >= 2
    assert harness.finish(task) == []


def test_a_run_killed_while_its_configuration_was_written_starts(harness) -> None:
    """Only the lock and half a file are there then."""
    task = "InvertedPendulum-v5"
    harness.begin(task)
    run = harness.run_of(task)
    run.mkdir()
    for name in ("lock", ".config.json.unfinished"):
        (run / name).touch()
    assert harness.finish(task) == []
