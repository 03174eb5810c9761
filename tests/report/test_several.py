"""Reports of several directories: runs are kept apart, and every row says where it is from."""

import csv

import pytest

from aes_rl.cli import main
from aes_rl.report.analysis import aggregates, rows
from aes_rl.report.load import load
from aes_rl.report.verdicts import verdicts
from tests.report.conftest import write_run

SEEDS = (2, 20, 200, 2000, 20000)


def scores(base, samplers=("uniform", "adaptive")):
    return {
        (sampler, seed): [1.0, base + number, base + number + seed / 1e5]
        for number, sampler in enumerate(samplers, 1)
        for seed in SEEDS
    }


@pytest.fixture
def pair(tmp_path):
    """The same task, samplers and seeds twice, 100 apart; and a folder with another sampler alone."""
    write_run(tmp_path / "a" / "small", scores(100.0))
    write_run(tmp_path / "b" / "large", scores(200.0))
    write_run(tmp_path / "c", scores(300.0, ["predictive"]))
    readings = [
        f"1000,{sampler},{seed},captured_fraction,0.25\n" for sampler in ("uniform", "adaptive") for seed in SEEDS
    ]
    (tmp_path / "b" / "large" / "metrics.csv").write_text("env_step,sampler,seed,metric,value\n" + "".join(readings))
    return tmp_path


def test_runs_of_two_directories_are_not_mixed(pair) -> None:
    results = load(pair / "a", pair / "b")
    assert results.problems == []
    found = {row.sampler: (row.source, row.measures.final_performance) for row in rows(results, 1)}
    assert set(found) == {"uniform (a)", "adaptive (a)", "uniform (b)", "adaptive (b)"}
    for name, (source, final) in found.items():
        assert name.endswith(f"({source})")
        assert int(final) // 100 == (1 if source == "a" else 2)
    assert {member[2] for member in results.captured} == {"uniform (b)", "adaptive (b)"}
    (row, *_) = rows(results, 1)
    assert row.paper is not None, "the paper's row is found by the sampler's own name"
    (whole,) = aggregates(results, 1)
    assert whole.baseline == "uniform (a)"


def test_a_method_is_compared_with_uniform_replay_of_its_own_directory(pair) -> None:
    found = {one.sampler: one for one in verdicts(load(pair / "a", pair / "b"), window=1)}
    assert {name: one.baseline for name, one in found.items()} == {
        "adaptive (a)": "uniform (a)", "adaptive (b)": "uniform (b)", "uniform (b)": "uniform (a)",
    }  # fmt: skip
    assert found["uniform (b)"].final_improvement.value == 1.0
    alone = {one.sampler: one.baseline for one in verdicts(load(pair / "a", pair / "c"), window=1)}
    assert alone == {"adaptive": "uniform", "predictive": "uniform"}, "names without a repetition stay as they are"


def test_the_page_says_where_a_row_is_from(pair, monkeypatch, capsys) -> None:
    monkeypatch.chdir(pair)
    main(["report", "a", "c", "--window", "1"])
    assert not (pair / "a" / "report").exists(), "several directories are reported in the current one"
    page = (pair / "report" / "index.html").read_text()
    assert "5 seeds, from c" in page
    assert "Where the runs are from" in page
    assert "Where the runs are from" in (pair / "report" / "report.md").read_text()
    assert "predictive (from c)" in capsys.readouterr().out
    with (pair / "report" / "measures.csv").open() as file:
        assert {(row["sampler"], row["source"]) for row in csv.DictReader(file)} == {
            ("uniform", "a"), ("adaptive", "a"), ("predictive", "c"),
        }  # fmt: skip


def test_directories_of_one_name_are_told_by_their_paths(pair) -> None:
    write_run(pair / "other" / "a", scores(50.0))
    names = {row.sampler for row in rows(load(pair / "a", pair / "other" / "a"), 1)}
    assert f"uniform ({pair / 'a'})" in names
    assert f"uniform ({pair / 'other' / 'a'})" in names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a", "a"], "hold the same runs; give one of them"),
        (["a", "a/small"], "hold the same runs; give one of them"),
        (["a", "nowhere"], "nowhere is not a directory"),
        ([], "no directory given"),
    ],
)
def test_directories_that_cannot_be_reported_together(pair, monkeypatch, capsys, given, message) -> None:
    monkeypatch.chdir(pair)
    with pytest.raises(SystemExit):
        main(["report", *given])
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told
