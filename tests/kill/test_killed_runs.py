"""Runs that are killed and resumed; `python -m tests.kill` kills a hundred times."""

from random import Random

import pytest

from tests.kill.harness import MOMENTS, Harness


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    with Harness(tmp_path_factory.mktemp("killed")) as harness:
        yield harness


@pytest.mark.parametrize("task", ["InvertedPendulum-v5", "Pendulum-v1"])
def test_killed_and_resumed_runs_equal_uninterrupted_ones(task, harness) -> None:
    """Tables and tensors are equal if the simulator can be saved; otherwise all stored transitions must be possible."""
    random = Random(7)
    harness.begin(task)
    kills = [harness.kill(task, moment, random) for moment in (*MOMENTS, "renamed")]
    assert all(kill.is_in_time or kill.ended.code == 0 for kill in kills), harness.failure(task, kills[-1].ended)
    assert sum(kill.is_in_time for kill in kills) >= 2
    assert harness.finish(task) == []


def test_a_run_killed_while_its_configuration_was_written_starts(harness) -> None:
    """Then only the lock and an unfinished file exist."""
    task = "InvertedPendulum-v5"
    harness.begin(task)
    run = harness.run_of(task)
    run.mkdir()
    for name in ("lock", ".config.json.unfinished"):
        (run / name).touch()
    assert harness.finish(task) == []
