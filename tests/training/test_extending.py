"""Runs that are extended, and options that follow from their length."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from aes_rl.cli import main
from aes_rl.training import PAPER_TASKS, Runner, Training, preset, run_files
from tests.training.test_runs import SMALL, finish

STEADY = replace(SMALL, samplers=("uniform", "adaptive", "predictive"), env_steps=150)
"""No option of these samplers changes over the run."""


def tensors(directory):
    newest = max((directory / "checkpoint").iterdir())
    return {name: value.tobytes() for name, value in load_numpy(newest).items()}


def load_numpy(checkpoint):
    return {name: value.numpy() for path in checkpoint.glob("*.safetensors") for name, value in load_file(path).items()}


@pytest.mark.parametrize("agent", ["sac", "ddpg"])
def test_an_extended_run_is_the_longer_run(tmp_path, agent) -> None:
    """Byte for byte, if its end was an evaluation of the longer run too and nothing is annealed."""
    short, long = replace(STEADY, agent=agent), replace(STEADY, agent=agent, env_steps=250)
    finish(short, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text("of the shorter run")
    expected = finish(long, tmp_path / "whole")
    assert finish(long, tmp_path / "run") == expected
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert tensors(tmp_path / "run") == tensors(tmp_path / "whole")
    assert run_files.read_config(tmp_path / "run") == run_files.read_config(tmp_path / "whole")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["members"]


def test_a_run_that_is_being_extended_is_not_finished(tmp_path) -> None:
    finish(STEADY, tmp_path)
    runner = Runner(replace(STEADY, env_steps=250), tmp_path)
    next(runner.steps())
    assert not run_files.is_finished(tmp_path)
    runner.close()
    assert run_files.read_config(tmp_path).env_steps == 250


def test_an_extended_run_keeps_the_numbers_that_followed_from_its_length(tmp_path) -> None:
    unset = replace(STEADY, evaluate_every=None, checkpoint_every=None, sac=replace(STEADY.sac, warm_up_steps=None))
    finish(unset, tmp_path)
    finish(replace(unset, env_steps=210), tmp_path)
    config = run_files.read_config(tmp_path)
    assert (config.evaluate_every, config.checkpoint_every, config.sac.warm_up_steps) == (15, 50, 15)
    assert run_files.newest_scores(tmp_path / "evaluations.csv")[0] == config.env_steps == 210


def test_the_command_extends_and_says_what_depends_on_the_length(tmp_path, capsys) -> None:
    finish(replace(SMALL, env_steps=100), tmp_path)
    main(["train", str(tmp_path), "--env-steps", "120"])
    told = " ".join(capsys.readouterr().out.split())
    assert "extending the run from 100 to 120 environment steps prioritized: options that change over the run" in told
    assert "mean return over 2 test episodes per seed, after 120 environment steps" in told
    assert "captured fraction" not in told, "it was not measured"
    config = run_files.read_config(tmp_path)
    assert config == replace(SMALL, env_steps=120)
    for words, message in (
        (["--env-steps", "110"], "(env_steps 120 there and 110 here)"),
        (["--env-steps", "130", "--seeds", "5"], "(seeds (0, 1) there and (5,) here)"),
        (["--agent", "ddpg"], "(agent 'sac' there and 'ddpg' here)"),
        (["--samplers", "naive"], "(samplers ('uniform', 'prioritized', 'adaptive') there and ('naive',) here)"),
    ):
        with pytest.raises(SystemExit):
            main(["train", str(tmp_path), *words])
        assert f"another configuration {message};" in capsys.readouterr().err
    assert run_files.read_config(tmp_path) == config


def test_a_run_without_checkpoint_is_not_extended(tmp_path, capsys) -> None:
    run_files.write_config(tmp_path, SMALL)
    (tmp_path / "evaluations.csv").write_text("published")
    with pytest.raises(SystemExit):
        main(["train", "--env-steps", "1000", str(tmp_path)])
    assert "no checkpoint to continue from" in capsys.readouterr().err
    assert (tmp_path / "evaluations.csv").read_text() == "published"


def test_short_runs_are_evaluated_and_saved_more_often() -> None:
    short = Training(env_steps=1000).resolved()
    assert (short.evaluate_every, short.checkpoint_every) == (100, 333)
    assert Training(env_steps=1, ddpg=SMALL.ddpg).evaluation_interval == 1
    given = Training(env_steps=1000, evaluate_every=7, checkpoint_every=9).resolved()
    assert (given.evaluate_every, given.checkpoint_every) == (7, 9)
    paper = [preset("paper", task, agent) for task in PAPER_TASKS for agent in ("sac", "ddpg")]
    for config in (Training(), *paper):
        assert (config.evaluation_interval, config.checkpoint_interval) == (10_000, 50_000)
