"""The numbers that README.md and docs/idea.md quote, recomputed from results/."""

import csv
import json
import re
from pathlib import Path

import pytest

from benchmarks import learn_dqn
from scripts import environment_tables, figures, speed_figure

ROOT = Path(__file__).parent.parent


def text_of(page: str) -> str:
    """A page as one line, so that a claim may be wrapped."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text())


@pytest.fixture(scope="module")
def verdicts() -> list[dict[str, str]]:
    with (ROOT / "docs" / "results" / "verdicts.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_show_the_published_readings() -> None:
    assert (figures.FIGURES / "captured.svg").read_text() == figures.captured()
    assert (figures.FIGURES / "idea.svg").read_text() == figures.idea()


def test_readings_below_zero() -> None:
    counts, readme = figures.below_zero(), text_of("README.md")
    (total,) = {total for _, total in counts.values()}
    assert f"of {total:,} readings in eight experiments none was below zero" in readme
    assert counts["predictive"][0] == 0
    assert f"({counts['adaptive'][0]} readings below zero)" in readme
    assert f"({counts['prioritized'][0]} below zero)" in readme


def test_what_is_shown_about_variance(verdicts) -> None:
    """Every seed's mean is above zero for predictive selection everywhere, for AES with SAC alone."""
    for row in verdicts:
        readings = figures.readings(f"{row['task'].split('-')[0].lower()}-{row['agent']}")
        means = [
            sum(of) / len(of)
            for sampler, by_step in readings.items()
            if sampler == row["sampler"]
            for of in zip(*[values for step, values in by_step.items() if 2 * step > max(by_step)], strict=True)
        ]
        assert len(means) == 5
        if row["sampler"] == "predictive" or (row["sampler"], row["agent"]) == ("adaptive", "sac"):
            assert min(means) > 0, row
        elif (row["sampler"], row["agent"]) == ("adaptive", "ddpg"):
            assert float(row["captured"]) < 0, row


def test_what_is_not_shown_about_scores(verdicts) -> None:
    readme = text_of("README.md")
    predictive = {(row["task"], row["agent"]): row for row in verdicts if row["sampler"] == "predictive"}
    ratios = [float(r["final"]) / float(r["uniform_final"]) for (_, agent), r in predictive.items() if agent == "sac"]
    assert len(ratios) == 6
    assert f"ended at {min(ratios):.2f} to {max(ratios):.2f} of uniform replay's score on six tasks" in readme
    ddpg = [row for (_, agent), row in predictive.items() if agent == "ddpg"]
    assert all(float(row["final"]) > float(row["uniform_final"]) for row in ddpg)
    assert "on both tasks, each with p 0.15" in readme
    assert {round(float(row["final_p"]), 2) for row in ddpg} == {0.15}


def test_the_actor_is_noisier_on_halfcheetah(verdicts) -> None:
    rows = [row for row in verdicts if row["task"] == "HalfCheetah-v5"]
    assert len(rows) == 6
    assert all(float(row["captured_actor"]) < 0 for row in rows)


def test_speed() -> None:
    results = ROOT / "benchmarks" / "results"
    readme, replay = text_of("README.md"), json.loads((results / "replay.json").read_text())
    assert f"| faster than the best prioritized peer | {replay['speedup_vs_best_prioritized_peer']:.1f}× |" in readme
    assert f"| faster than Stable-Baselines3's uniform buffer | {replay['speedup_vs_sb3_uniform']:.1f}× |" in readme
    assert f"| growth from ten thousand to ten million slots | {replay['growth_10k_to_10m']:.1f}× |" in readme
    assert f"| {replay['overhead_bytes_per_slot']:.1f} |" in readme
    hosts = json.loads((results / "integrations.json").read_text())
    ratios = [hosts[name] for name in ("sb3", "torchrl", "tianshou")]
    assert f"costs {min(ratios):.2f} to {max(ratios):.2f} times an update of the host library" in readme


def test_training_speed() -> None:
    page = speed_figure.PAGE.read_text()
    assert speed_figure.with_table(page) == page
    assert speed_figure.FIGURE.read_text() == speed_figure.figure()
    replay = json.loads((ROOT / "benchmarks" / "results" / "replay.json").read_text())
    adaptive, predictive = (replay[f"speedup_vs_best_prioritized_peer{suffix}"] for suffix in ("", "_predictive"))
    assert f"{adaptive:.1f} times (adaptive) and {predictive:.1f} times (predictive) faster" in page
    one, two = speed_figure.steps_per_second(1), speed_figure.steps_per_second(2)
    assert "At batches of 16 one thread is faster than two" in page
    assert one["predictive", 16] > two["predictive", 16]


def test_environment_steps_cost_what_the_simulator_does() -> None:
    page = environment_tables.PAGE.read_text()
    assert environment_tables.with_tables(page) == page
    result = environment_tables.result()
    assert all(own[environment_tables.LIMIT] <= 1.05 for own in result["cpu_us_per_member_and_step"].values())
    (learners_part, _) = result["waiting_us_per_step_of_all"].values()
    assert f"It looks first now: {learners_part:.1f} µs" in page


def test_medians_of_the_captured_fraction() -> None:
    table = text_of("docs/samplers/which.md")
    for name, cell in figures.CELLS.items():
        of = figures.readings(cell)
        medians = [figures.quartiles(figures.second_half(of[sampler]))[1] for sampler in figures.SAMPLERS]
        row = " | ".join(f"{value:.2f}".replace("-", "−") for value in medians)
        assert f"| {name} | {row} |" in table


def test_the_idea_in_numbers() -> None:
    of, idea = figures.norms(), text_of("docs/idea.md")
    assert f"{of['slots']:,.0f} stored transitions" in idea
    assert f"holds {100 * of['share_of_norms']:.0f} % of the sum" in idea
    assert f"draws it {100 * of['share_of_draws']:.0f} % of the time" in idea
    assert f"has {100 * of['oracle_ratio']:.0f} % of uniform sampling's cost" in idea


def test_learning_curves_of_dqn() -> None:
    """The table is that of the finished runs beside it."""
    assert learn_dqn.table() in (ROOT / "results" / "dqn" / "README.md").read_text()
