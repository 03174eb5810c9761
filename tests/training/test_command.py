"""What the command line does beside training: lines in a log, directories, samplers from outside."""

import csv
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from aes_rl.cli import main
from aes_rl.training import Runner, run_files
from aes_rl.training.command import run_training
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
        run_files.settled(tmp_path, replace(SMALL, seeds=(7,)))


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
    for words, message in (
        (["train", "x", *own, "--module=no_such"], "there is no module"),
        (
            ["evaluate", "run"],
            "has the sampler 'fading', which is not known here; the run was started with --module my",
        ),
        (["train", "run"], "--module my_sampler: if you trust what that imports, add it to the command"),
    ):
        told = subprocess.run([*start, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        assert message in told.stderr
        assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [
        ("tensorboard", "tensorboard", ["train", "run", *OPTIONS, "--tensorboard"]),
        ("ray", "ray", ["compare", "run", "--engine", "ray", "--tasks", "InvertedPendulum-v5"]),
        ("ray", "ray", ["tune", "run", "--engine", "ray", "--task", "InvertedPendulum-v5"]),
        ("optuna", "tune", ["tune", "run", "--task", "InvertedPendulum-v5"]),
        ("matplotlib", "report", ["lab", "sweep", "run"]),
        ("jinja2", "report", ["lab", "regret", "run"]),
    ],
)
def test_a_missing_package_is_named_before_a_directory_is_made(
    package, extra, words, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SystemExit):
        main(words)
    told = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed; pip install 'aes-rl[{extra}]'" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["--agent td3", "--preset default --agent", "--preset nosuch", "run --task"])
def test_a_value_that_an_option_does_not_take_is_told_like_any_other(words, tmp_path, monkeypatch, capsys) -> None:
    """Those of the options that are read first, since the defaults of the others depend on them, too."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", *words.split()])
    told = capsys.readouterr()
    assert "For full helptext, run aes-rl train --help" in told.err + told.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", ["", "train", "evaluate", "record", "lab", "lab variance", "bench", "compare", "tune", "report"]
)
def test_every_help_has_the_common_options(words, capsys) -> None:
    with suppress(SystemExit):
        main([*words.split(), "--help"])
    told = capsys.readouterr().out
    assert told.count("--module NAME") == told.count("--debug  ") == 1


def test_the_help_begins_with_the_options_that_matter(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = capsys.readouterr().out
    groups = re.findall(r"^\W+([\w.]+) options\W+$", told, re.MULTILINE)
    assert groups[:5] == ["main", "rounds", "recording", "resources", "sac"]
    options = re.findall(r"^\W (--[a-z][a-z-]+)", told, re.MULTILINE)
    assert options[:10] == [
        *("--preset", "--task", "--agent", "--samplers", "--seeds", "--env-steps", "--capacity"),
        *("--evaluate-every", "--measure-variance-every", "--device"),
    ]


def test_measured_fractions_are_shown_at_the_end(tmp_path, capsys) -> None:
    """As the mean of the readings in the second half of training, per sampler and seed."""
    config = replace(SMALL, samplers=("uniform", "predictive"), env_steps=120, measure_variance_every=20)
    run_training(config, tmp_path)
    told = capsys.readouterr().out
    readings = run_files.captured_fractions(tmp_path / "metrics.csv", 60)
    assert {len(values) for values in readings.values()} == {3}
    _, shown = told.split("mean of the readings after 60 environment steps:")
    for seed in config.seeds:
        assert f"{sum(readings['predictive', seed]) / 3:.2f}" in shown


def test_the_first_line_of_a_log_says_what_its_numbers_are(tmp_path, capsys) -> None:
    main(["train", str(tmp_path / "run"), *OPTIONS, "--env-steps", "60"])
    assert "mean return: uniform " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "run", "--episodes", "0"], "episodes is 0"),
        (["evaluate", "run", "--number", str(2**63)], f"number is {2**63}; it must be a whole number"),
        (["record", "run", "--frames", "0"], "frames is 0"),
    ],
)
def test_impossible_options_are_told_with_the_usage(words, message, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_brackets_in_a_path_are_no_markup(tmp_path, capsys) -> None:
    directory = tmp_path / "hopper[lr=1]x[" / "a]"
    directory.parent.mkdir()
    main(["train", str(directory), *OPTIONS])
    assert f"curves, metrics and checkpoint are in {directory}\n" in capsys.readouterr().out
