"""What the command line does beside training: lines in a log, directories, samplers from outside."""

import csv
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from aes_rl.cli import main
from aes_rl.training import Runner, run_files
from tests import own_sampler
from tests.training.test_runs import OPTIONS, SMALL, command, finish


def test_a_log_has_a_line_for_every_evaluation(tmp_path) -> None:
    words = command(tmp_path / "run", "ddpg")
    output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    lines = [line.split() for line in output.splitlines() if " step " in line]
    steps = [words[words.index("step") + 1] for words in lines]
    assert steps == ["50", "100", "150", "200", "250", "260"]
    assert all("adaptive" in words for words in lines)


def test_a_directory_alone_continues_its_run(tmp_path, capsys) -> None:
    """With every option that it was begun with; finished, it shows the scores again."""
    runner = Runner(SMALL, tmp_path / "run")
    for step in runner.steps():
        if step.env_step == 130:
            break
    runner.save()
    runner.close()
    main(["train", str(tmp_path / "run")])
    assert (tmp_path / "run" / "evaluations.csv").read_text() == finish(SMALL, tmp_path / "whole")
    first = capsys.readouterr().out
    main(["train", str(tmp_path / "run")])
    scores = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert len(scores) == 3
    assert all(line in first for line in scores)


def test_what_differs_from_a_directorys_run_is_named(tmp_path) -> None:
    run_files.write_config(tmp_path, SMALL)
    with pytest.raises(ValueError, match=r"another configuration \(seeds \(0, 1\) there and \(7,\) here\)"):
        run_files.check_directory(tmp_path, replace(SMALL, seeds=(7,)))


def test_a_run_without_its_checkpoint_is_left_as_it_is(tmp_path, capsys) -> None:
    """Published curves, or a run whose checkpoint was deleted: to start it again would cost its tables."""
    finish(SMALL, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for is_finished in (True, False):
        if not is_finished:
            del before[tmp_path / "manifest.json"]
            (tmp_path / "manifest.json").unlink()
        with pytest.raises(SystemExit):
            main(["train", str(tmp_path)])
        assert "no checkpoint" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_finished_run_keeps_its_manifest(tmp_path) -> None:
    finish(SMALL, tmp_path)
    (tmp_path / "manifest.json").write_text("of its time")
    main(["train", str(tmp_path)])
    assert (tmp_path / "manifest.json").read_text() == "of its time"


def test_a_sampler_of_ones_own_is_trained_and_compared(tmp_path) -> None:
    (tmp_path / "my_sampler.py").write_text(own_sampler.SOURCE)
    start = [sys.executable, "-m", "aes_rl"]
    own = ["--module", "my_sampler"]
    run = [*OPTIONS, "--samplers", "fading", "--sampler.fading.floor", "0.3"]
    study = shlex.split("compare study --preset default --tasks InvertedPendulum-v5 --agents ddpg --samplers fading")
    study += shlex.split("--seeds 0 --env-steps 60 --set ddpg.warm_up_steps=20 evaluate_every=60 ddpg.hidden=[8,8]")
    for words in (["train", "run", *run, *own], ["evaluate", "run", "--episodes", "1", *own], [*study, *own]):
        subprocess.run([*start, *words], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    for table in (tmp_path / "run" / "evaluations.csv", *tmp_path.glob("study/*/*/*/evaluations.csv")):
        assert {row["sampler"] for row in csv.DictReader(table.read_text().splitlines())} == {"fading"}
    told = subprocess.run([*start, "train", "x", *own, "--module=no_such"], capture_output=True, text=True, check=False)
    assert "there is no module" in told.stderr
