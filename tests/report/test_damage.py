"""Damaged runs are named with the reason, and the rest is reported."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aes_rl.cli import main
from aes_rl.report.analysis import aggregates
from aes_rl.report.load import load
from tests.report.conftest import write_run
from tests.report.damage import NO_SCORES, SCORES_ONLY, Damage, write_study

SCORES = {("uniform", 2): [1.0, 2.0, 3.0]}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One run to damage beside a good one."""
    write_run(tmp_path / "runs" / "damaged", SCORES)
    write_run(tmp_path / "runs" / "good", SCORES, "Ant-v5")
    return tmp_path / "runs"


def lines_about(problems: list[str], run: Path) -> list[str]:
    return [line for line in problems if line.startswith((f"{run} ", f"{run}:"))]


@pytest.mark.parametrize("damage", NO_SCORES.values(), ids=NO_SCORES.keys())
def test_a_damaged_run_is_named_and_the_others_are_reported(runs: Path, damage: Damage) -> None:
    damage.do(runs / "damaged")
    results = load(runs)
    assert [curve.task for curve in results.curves] == ["Ant-v5"]
    (line,) = lines_about(results.problems, runs / "damaged")
    assert damage.reason in line
    assert "\n" not in line
    assert len(line) < 1500


@pytest.mark.parametrize("damage", SCORES_ONLY.values(), ids=SCORES_ONLY.keys())
def test_damage_beside_the_evaluations_leaves_the_curves(runs: Path, damage: Damage) -> None:
    damage.do(runs / "damaged")
    results = load(runs)
    assert len(results.curves) == 2
    assert results.captured == {}, "a damaged table is not used in part"
    (line,) = lines_about(results.problems, runs / "damaged")
    assert damage.reason in line
    assert "the scores are shown without" in line


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b'{"tasks": 5}',
        b"\xff",
        json.dumps({"tasks": ["a"], "agents": ["b"], "samplers": [1], "seeds": [1]}),
    ],
)
def test_a_damaged_study_is_told_and_its_runs_reported(runs: Path, content: bytes | str) -> None:
    (runs / "study.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    results = load(runs)
    assert len(results.curves) == 2
    assert any("study.json could not be read" in line and "not known" in line for line in results.problems)


def test_fifty_of_five_hundred_runs_damaged_in_ten_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ways = [NO_SCORES[name] for name in ("cut row", "cut number", "bytes", "empty", "no column", "nan", "step back",
                                         "half a config", "seeds is a dict", "steps in a list")]  # fmt: skip
    expected = write_study(tmp_path / "runs", 450, ways * 5)
    assert len(expected) == 50
    main(["report", str(tmp_path / "runs"), "--window", "2"])
    page = (tmp_path / "runs" / "report" / "index.html").read_text()
    notes = [line for line in (tmp_path / "runs" / "report" / "report.md").read_text().splitlines() if "Note: " in line]
    problems = load(tmp_path / "runs").problems
    assert "<b>450</b>runs" in page
    assert len(notes) == len(problems) == 50
    for run, reason in expected.items():
        (line,) = lines_about(problems, run)
        assert reason in line
        assert f"{run} " in page
    assert capsys.readouterr().out.count("note: ") == 50


def test_where_all_runs_are_damaged_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path / "runs", 0, [NO_SCORES["cut row"]] * 30)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "runs")])
    told = capsys.readouterr().err.strip()
    assert "holds no run with an evaluation" in told
    assert "and 27 more problems" in told
    assert "\n" not in told


def test_seeds_without_a_common_step_do_not_end_the_report(tmp_path: Path) -> None:
    for sampler in ("uniform", "adaptive"):
        write_run(tmp_path / sampler / "0", {(sampler, 0): [1.0, 2.0]}, every=1000)
        write_run(tmp_path / sampler / "1", {(sampler, 1): [1.0, 2.0]}, every=1001)
    main(["report", str(tmp_path)])
    assert "Hopper-v5 sac: seeds have no evaluation step in common" in (tmp_path / "report" / "index.html").read_text()


def test_a_rise_that_is_only_rounding_does_not_overflow(tmp_path: Path) -> None:
    scores = {("uniform", 0): [0.0, 1e-300], ("adaptive", 0): [0.0, 1e30]}
    write_run(tmp_path / "run", scores)
    results = load(tmp_path)
    assert aggregates(results, 1) == []
    assert any("did not improve" in line for line in results.problems)
    main(["report", str(tmp_path), "--window", "1"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CONFIGS = st.fixed_dictionaries(dict.fromkeys(("task", "agent", "samplers", "seeds", "env_steps"), JSON))
CELLS = st.sampled_from(["1", "2", "1000", "2000", "uniform", "captured_fraction", "variance", "nan", "-1", "", '"'])
TABLES = st.lists(st.lists(CELLS, min_size=5, max_size=5).map(",".join), max_size=4).map(
    lambda rows: "\n".join(["env_step,sampler,seed,metric,value", *rows, ""]).encode()
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=st.none() | CONFIGS.map(lambda config: json.dumps(config).encode()) | st.binary(max_size=50),
    evaluations=st.none() | TABLES.map(lambda table: table.replace(b"value", b"mean_return")) | st.binary(max_size=50),
    metrics=st.none() | TABLES | st.binary(max_size=50),
    manifest=st.none() | JSON.map(lambda value: json.dumps({"wall_seconds": value}).encode()) | st.binary(max_size=20),
    study=st.none() | JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20),
)
def test_whatever_a_run_holds_the_others_are_read(runs: Path, **contents: bytes | None) -> None:
    names = {"evaluations": "evaluations.csv", "metrics": "metrics.csv"}
    write_run(runs / "any", SCORES, "Walker2d-v5") if not (runs / "any").exists() else None
    for name, content in contents.items():
        path = (runs if name == "study" else runs / "any") / names.get(name, f"{name}.json")
        if content is not None:
            path.write_bytes(content)
    tasks = {curve.task for curve in load(runs).curves}
    assert tasks >= {"Hopper-v5", "Ant-v5"}
