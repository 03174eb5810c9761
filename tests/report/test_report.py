"""Reports of whole, partial and damaged studies."""

import csv
import gzip
import json

import numpy as np
import pytest

from aes_rl.cli import main
from aes_rl.report.analysis import aggregates, rows
from aes_rl.report.load import load
from aes_rl.report.paper_table import paper_rows
from tests.report.conftest import write_run


def test_the_papers_table_is_read_whole() -> None:
    found = {(row.task, row.agent, row.sampler): row for row in paper_rows()}
    assert len(found) == 8 * 2 * 3
    assert {task for task, *_ in found} == {
        "InvertedPendulum", "InvertedDoublePendulum", "Reacher", "Hopper", "HalfCheetah", "Walker2d", "Ant", "Humanoid",
    }  # fmt: skip
    assert found["Humanoid", "ddpg", "uniform"].measures == (0.00169, 1.0, 287.537, 103.397, 287.537)
    assert found["Reacher", "ddpg", "adaptive"].measures == (-9.68e-6, 1.0, -9.68, 0.937, -9.68)
    assert found["Reacher", "ddpg", "uniform"].measures.learning_speed == -1.531e-5
    slips = {key: row.slip for key, row in found.items() if row.slip}
    assert slips["InvertedPendulum", "sac", "prioritized"] == "the max score copies the learning speed"
    assert slips["HalfCheetah", "ddpg", "adaptive"] == "the final performance exceeds the max score"
    assert {key[0] for key in slips} == {"InvertedPendulum", "HalfCheetah", "Reacher"}
    assert len(slips) == 5


def test_paper_values_compare_at_equal_horizons_only(tmp_path) -> None:
    scores = {("adaptive", seed): np.arange(1.0, 11.0) for seed in (2, 20)}
    write_run(tmp_path / "a", scores, "Hopper-v5", every=100_000)
    write_run(tmp_path / "b", scores, "HalfCheetah-v5", every=100_000)
    write_run(tmp_path / "c", scores, "Swimmer-v5", every=100_000)
    found = {row.task: row for row in rows(load(tmp_path), 1)}
    assert found["Hopper-v5"].is_comparable
    assert not found["HalfCheetah-v5"].is_comparable
    assert found["HalfCheetah-v5"].paper is not None
    assert found["Swimmer-v5"].paper is None


def test_seeds_with_different_horizons_are_compared_where_both_are(tmp_path) -> None:
    write_run(tmp_path / "a", {("uniform", 1): [1.0, 2, 3, 4], ("uniform", 2): [3.0, 4]})
    results = load(tmp_path)
    (row,) = rows(results, 1)
    assert row.steps == 2000
    assert row.measures.final_performance == 3.0
    assert any(
        "1 of 2 seeds reached step 4,000, but all its numbers are at step 2,000" in one for one in results.problems
    )


def test_untouched_seeds(tmp_path) -> None:
    write_run(tmp_path / "a", {("adaptive", 2): [100.0] * 5, ("adaptive", 20): [1.0] * 5})
    (row,) = rows(load(tmp_path), 1)
    assert row.measures.final_performance == 50.5
    assert row.untouched is not None
    assert row.untouched.final_performance == 1.0
    (other,) = rows(load(tmp_path), 1, tuned_seed=20)
    assert other.untouched is not None
    assert other.untouched.final_performance == 100.0


def test_scores_are_normalised_by_task(study) -> None:
    for aggregate in aggregates(load(study), 1):
        assert aggregate.finals["uniform"].shape == (3, 2)
        assert aggregate.finals["uniform"].mean(axis=0) == pytest.approx([1.0, 1.0])
        assert aggregate.interquartile_means["adaptive"].value > 1.1
        low, high = aggregate.interquartile_means["adaptive"][1:]
        assert low <= aggregate.interquartile_means["adaptive"].value <= high
        assert aggregate.improvements["adaptive", "uniform"].value == 1.0


def test_files_of_a_report(study) -> None:
    main(["report", str(study), "--window", "3"])
    names = {path.name for path in (study / "report").rglob("*") if path.is_file()}
    figures = {f"{kind}_{agent}" for kind in ("curves", "aggregate", "profiles") for agent in ("ddpg", "sac")}
    tables = {"measures.csv", "measures.md", "measures.tex", "together.csv", "verdicts.csv"}
    drawn = {f"{figure}.{suffix}" for figure in figures for suffix in ("png", "svg", "pdf")}
    assert names == {"index.html", "report.md"} | tables | drawn
    with (study / "report" / "measures.csv").open() as handle:
        table = list(csv.DictReader(handle))
    assert len(table) == 12
    assert float(table[0]["final_performance"]) == rows(load(study), 3)[0].measures.final_performance
    markdown = (study / "report" / "measures.md").read_text()
    assert markdown.count("\n") == 14
    assert "**" in markdown


def test_damaged_and_missing_runs_are_told_and_the_rest_reported(study, capsys) -> None:
    (study / "study.json").write_text(
        json.dumps({
            "tasks": ["Hopper-v5", "Reacher-v5", "Ant-v5"], "agents": ["ddpg", "sac"],
            "samplers": ["uniform", "prioritized", "adaptive"], "seeds": [2, 20, 200],
        })
    )  # fmt: skip
    (study / "Hopper-v5" / "ddpg" / "0" / "evaluations.csv").write_bytes(b"env_step,sampler\n\x00\xff,garbage\n")
    (study / "Reacher-v5" / "ddpg" / "0" / "config.json").write_text("{")
    main(["report", str(study)])
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("could not be read") == 2
    assert "36 of 54 runs have no evaluation yet, such as Hopper-v5 ddpg uniform 2" in told
    page = (study / "report" / "index.html").read_text()
    assert page.count("could not be read") == 2
    assert "Reacher-v5" in page


def test_runs_of_one_name_are_not_mixed(tmp_path) -> None:
    """The one that got farthest is shown, its readings alone, and the others are named."""
    write_run(tmp_path / "a", {("adaptive", 2): [1.0] * 3, ("uniform", 2): [5.0] * 3}, env_steps=9000)
    write_run(tmp_path / "b", {("adaptive", 2): [7.0] * 9})
    for name, value in (("a", 0.1), ("b", 0.7)):
        table = "env_step,sampler,seed,metric,value\n" + f"1000,adaptive,2,captured_fraction,{value}\n"
        (tmp_path / name / "metrics.csv").write_text(table)
    results = load(tmp_path)
    found = {(curve.sampler, curve.seed): curve.scores[-1] for curve in results.curves}
    assert found == {("adaptive", 2): 7.0, ("uniform", 2): 5.0}
    assert len(results.curves) == 2
    assert results.captured == {("Hopper-v5", "sac", "adaptive", 2): [(1000, 0.7)]}
    assert any("1 of 2 runs, such as Hopper-v5 sac adaptive 2, left out" in line for line in results.problems)


def test_a_window_longer_than_the_runs_is_told(tmp_path, capsys) -> None:
    write_run(tmp_path / "a", {("uniform", 2): [1.0, 2, 3]})
    main(["report", str(tmp_path), "--window", "10"])
    told = " ".join(capsys.readouterr().out.split())
    assert "means of the last 10 evaluations, and some runs have 3" in told


@pytest.mark.parametrize(("evaluations", "means"), [(3, "single evaluations"), (12, "means of 2"), (80, "means of 10")])
def test_the_window_follows_from_the_shortest_run(tmp_path, capsys, evaluations, means) -> None:
    write_run(tmp_path / "a", {("uniform", 2): [*range(evaluations)]})
    write_run(tmp_path / "b", {("uniform", 3): [*range(100)]})
    main(["report", str(tmp_path)])
    assert f"scores and measures are of {means}" in " ".join(capsys.readouterr().out.split())


def test_nothing_to_report_is_told_in_one_line(tmp_path, capsys) -> None:
    for words, message in (
        (["report", str(tmp_path / "nowhere")], "is not a directory"),
        (["report", str(tmp_path)], "holds no run with an evaluation"),
        (["report", str(tmp_path), "--window", "0"], "window is 0"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        told = capsys.readouterr().err.strip()
        assert message in told
        assert "\n" not in told


def test_published_curves_are_drawn_beside_ours(study, tmp_path, capsys) -> None:
    path = tmp_path / "Hopper-v3_sac.csv"
    path.write_text("env_step,rew,rew:shaded,a,b\n0,1,0,1,1\n5000,2,0,1,3\n10000,3,0,2,4\n")
    main(["report", str(study), "--reference", str(path), "--reference-label", "somebody"])
    assert "somebody" in (study / "report" / "figures" / "curves_sac.svg").read_text()
    assert "somebody" not in (study / "report" / "figures" / "curves_ddpg.svg").read_text()
    bad = tmp_path / "curves.csv"
    bad.write_text("env_step\n")
    with pytest.raises(SystemExit):
        main(["report", str(study), "--reference", str(bad)])
    assert "is not named TASK-vN_AGENT.csv" in capsys.readouterr().err


def test_what_is_missing_is_on_the_page_for_the_documentation(tmp_path) -> None:
    write_run(tmp_path / "study" / "run", {("uniform", 2): [1.0, 2.0]}, env_steps=5000)
    main(["report", str(tmp_path / "study")])
    assert (
        "is at step 2,000 of 5,000; it is shown up to that step."
        in (tmp_path / "study" / "report" / "report.md").read_text()
    )


def test_captured_fractions_are_drawn_where_they_were_measured(study) -> None:
    rows = ["env_step,update_step,sampler,seed,metric,value"]
    rows += [f"{step},{step},adaptive,2,captured_fraction,{step / 30000}" for step in (10_000, 20_000)]
    rows += ["10000,10000,adaptive,2,actor_loss,1.0", "10000,10000,adaptive,2,variance,0.5"]
    table = study / "Hopper-v5" / "sac" / "0" / "metrics.csv"
    table.write_text("\n".join(rows) + "\n")
    expected = {("Hopper-v5", "sac", "adaptive", 2): [(10_000, 1 / 3), (20_000, 2 / 3)]}
    assert load(study).captured == expected
    table.with_suffix(".csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    table.unlink()
    assert load(study).captured == expected  # as published
    assert load(study).variance == {("Hopper-v5", "sac", "adaptive", 2): [(10_000, 0.5)]}
    main(["report", str(study)])
    assert (study / "report" / "figures" / "captured_sac.svg").exists()
    assert (study / "report" / "figures" / "variance_sac.svg").exists()
    assert not (study / "report" / "figures" / "captured_ddpg.svg").exists()
    against = (study / "report" / "figures" / "captured_against_score.svg").read_text()
    assert "captured fraction" in against
    assert "<!-- Hopper -->" in against
    assert "Reacher" not in against, "nothing was measured there"
