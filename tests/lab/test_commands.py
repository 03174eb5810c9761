"""The laboratory's commands on a small recorded problem."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from aes_rl import Adaptive, Predictive, Uniform
from aes_rl.cli import main
from aes_rl.lab.commands.score import Scoring, averages, parse
from aes_rl.lab.parallel import Simulation, simulate
from aes_rl.lab.recorded import Facts, find, load
from aes_rl.lab.score import Point, Score
from aes_rl.samplers.registry import RULES

RUN = """--task InvertedPendulum-v5 --samplers uniform --env-steps 700 --capacity 500 --trace-every 100
--traced-slots 500 --evaluate-every 700 --evaluation-episodes 1 --sac.hidden 8 8 --sac.batch-size 16
--sac.warm-up-steps 100"""


MY_CONFIG = """
from dataclasses import dataclass
from aes_rl import Uniform

@dataclass(frozen=True)
class Mine(Uniform):
    pass
"""
MY_RULE = """
from my_config import Mine
from aes_rl.samplers.registry import RULES

class MyRule(RULES["uniform"]):
    config_type = Mine

RULES["mine"] = MyRule
"""


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """A folder with one packed problem."""
    folder = tmp_path_factory.mktemp("laboratory")
    main(["train", str(folder / "run"), *RUN.split()])
    main(["lab", "pack", str(folder / "run"), str(folder / "problems" / "pendulum.safetensors")])
    return folder / "problems"


def test_a_packed_problem_can_be_packed_again(problems, tmp_path) -> None:
    source, target = problems / "pendulum.safetensors", tmp_path / "thinner.safetensors"
    main(["lab", "pack", str(source), str(target), "--thinning", "2", "--every", "3"])
    again, thinned = load(target), load(source).thinned(2, every=3)
    assert again.facts == thinned.facts
    assert np.array_equal(again.errors, thinned.errors)


def test_score_prints_every_sampler(problems, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    argv = f"--problems {problems} --slots 500 --batch-sizes 16 --output {tmp_path / 'all.csv'} --workers 1".split()
    main(["lab", "score", "uniform", "adaptive:nu=auto,floor=0.1", "predictive", *argv])
    printed = capsys.readouterr().out
    assert "adaptive:nu=auto,floor=0.1" in printed
    assert "lowest" in printed
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["sampler"] for row in rows} == {"uniform", "adaptive:nu=auto,floor=0.1", "predictive"}
    assert all(abs(float(row["captured_fraction"])) < 1e-3 for row in rows if row["sampler"] == "uniform")


@pytest.mark.parametrize(
    ("text", "task", "agent", "expected"),
    [
        ("adaptive", "Hopper-v5", "sac", Adaptive(0.2, 1000.0, 0.8, 0.2)),
        ("adaptive:nu=auto", "Hopper-v5", "ddpg", Adaptive(0.1, "auto", 0.9)),
        ("adaptive", "Pusher-v5", "sac", Adaptive()),
        ("predictive:floor=0.3", "Hopper-v5", "sac", Predictive(floor=0.3)),
    ],
)
def test_adaptive_starts_from_the_papers_parameters(text, task, agent, expected) -> None:
    assert parse(text, Facts(task, agent, 0, 100, 16, 10, 1)) == expected


def test_more_processes_simulate_the_same(problems) -> None:
    (problem,) = find([problems])
    simulations = [Simulation(config, problem, 16) for config in (Adaptive(), Predictive(), Uniform())]
    assert simulate(simulations, workers=2) == simulate(simulations, workers=1)


def test_a_shipped_problem_is_found_by_its_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = find([Path("invertedpendulum-sac")])
    assert problem.facts.task == "InvertedPendulum-v5"
    with pytest.raises(ValueError, match="the shipped problems are halfcheetah-ddpg,"):
        find([Path("no-such-problem")])


def test_a_users_sampler_is_registered_in_every_process(problems, tmp_path, capsys, monkeypatch) -> None:
    """Its configuration is in one file, its rule in another."""
    (tmp_path / "my_config.py").write_text(MY_CONFIG)
    (tmp_path / "my_rule.py").write_text(MY_RULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("AES_RL_MODULES", "")
    monkeypatch.setenv("COLUMNS", "200")
    argv = f"--module my_rule --problems {problems} --slots 500 --batch-sizes 16 --workers 2".split()
    try:
        main(["lab", "score", "mine", "uniform", "mine", *argv])
    finally:
        RULES.pop("mine", None)
    assert capsys.readouterr().out.count("mine") == 1


def test_averages_are_over_the_problems_that_are_large_enough() -> None:
    def score(problem, sampler, captured):
        points = [Point(live, value, 0.5, {}) for live, value in captured.items()]
        return Score(problem, 64, sampler, points)

    scores = [
        score("small", "uniform", {100: 0.0}),
        score("small", "mine", {95: 0.2, 100: 0.4}),
        score("large", "uniform", {100: 0.0, 500: 0.0}),
        score("large", "mine", {100: 0.5, 300: -0.1, 500: 0.7}),
    ]
    args = Scoring(samplers=("uniform", "mine"), slots=(100, 500, 900))
    lines = list(averages(scores, args))
    assert [(name, label) for name, label, _ in lines] == [
        ("mean of 2", "100"),
        ("mean of 1", "500"),
        ("all 2", "lowest"),
    ]
    assert [values for _, _, values in lines] == [[0, pytest.approx(0.4)], [0, 0.7], [0, -0.1]]


def test_sweep_writes_figure_numbers_and_page(problems, tmp_path, capsys) -> None:
    main(["lab", "sweep", str(tmp_path), "--problems", str(problems), "--batch-sizes", "16", "--workers", "1"])
    assert "ν = auto" in capsys.readouterr().out
    assert {"sweep.csv", "sweep.svg", "index.html"} <= {path.name for path in tmp_path.iterdir()}


def test_scale_writes_figure_numbers_and_page(problems, tmp_path, capsys) -> None:
    argv = ["--samplers", "uniform", "adaptive", "--slots", "400", "600", "--batch-sizes", "8", "32", "--workers", "1"]
    main(["lab", "scale", str(tmp_path), "--problems", str(problems), *argv])
    assert "By batch size" in capsys.readouterr().out
    assert {"scale.csv", "scale.svg", "index.html"} <= {path.name for path in tmp_path.iterdir()}
    with (tmp_path / "scale.csv").open() as file:
        assert {row["batch_size"] for row in csv.DictReader(file)} == {"8", "16", "32"}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["score", "best"], "unknown sampler 'best'"),
        (["score", "adaptive:nu"], "'nu' sets no option; write name=value"),
        (["score", "adaptive:mu=1"], "there is no option 'mu'"),
        (["score", "full-information"], "needs feedback on all slots at once"),
        (["score", "uniform", "--problems", "nowhere"], "there is no recorded problem nowhere"),
        (["guess"], "unknown command 'guess'; the commands of aes-rl lab are variance,"),
    ],
)
def test_bad_input_is_one_line(argv, line, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["lab", *argv])
    assert line in capsys.readouterr().err
