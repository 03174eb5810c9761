"""The claims of README.md, docs/idea.md and other hand-written pages, recomputed from the files that they rest on.

The pages of docs/results and docs/variance.md are generated whole: tests/report/test_results_pages.py.
"""

import csv
import json
import re
import tomllib
from pathlib import Path

import pytest

from aes_rl import paper
from aes_rl.study.grid import Study
from aes_rl.training.presets import adaptive_of_the_paper
from benchmarks import learn_dqn
from scripts import environment_tables, figures, network_draws, speed_figure
from scripts.results_pages import confirmation, time_to_score

ROOT = Path(__file__).parent.parent
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


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
    assert f"in all {total:,} measurements of eight experiments" in readme
    assert counts["predictive"][0] == 0
    for sampler in ("adaptive", "prioritized"):
        of_ddpg = [
            value
            for cell in figures.CELLS.values()
            if cell.endswith("ddpg")
            for values in figures.readings(cell)[sampler].values()
            for value in values
        ]
        below = sum(value < 0 for value in of_ddpg)
        assert f"added variance in {below} of {len(of_ddpg)} measurements" in readme, sampler


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


def test_adaptive_beside_predictive(verdicts: list[dict[str, str]]) -> None:
    of = {(row["task"], row["sampler"]): float(row["captured"]) for row in verdicts if row["agent"] == "sac"}
    tasks = {task for task, _ in of}
    assert len(tasks) == 6
    assert "with SAC at batch 256 within 0.03 of `Predictive()` on four of six tasks" in text_of("README.md")
    assert sum(of[task, "adaptive"] > of[task, "predictive"] - 0.03 for task in tasks) == 4


def test_the_lowest_reading_of_predictive_selection() -> None:
    values = [
        value
        for cell in figures.CELLS.values()
        for at_step in figures.readings(cell)["predictive"].values()
        for value in at_step
    ]
    page = text_of("docs/samplers/predictive.md")
    assert f"none of {len(values):,} readings in eight experiments of five seeds is below zero" in page
    assert f"the lowest is {min(values):.2f}" in page


def test_small_batches() -> None:
    """README's numbers are those of the runs, and neither page claims more tasks than there are."""
    readme, results = text_of("README.md"), text_of("docs/results/index.md")
    tasks, of_16 = (confirmation.tasks_done(size) for size in (64, 16))
    of = {
        (size, sampler): confirmation.improvement(size, sampler).replace("(", "({}", 1)
        for size in (64, 16)
        for sampler in (confirmation.BEST, "predictive")
    }
    for (size, sampler), number in of.items():
        is_first = (size, sampler) == (64, confirmation.BEST)
        assert number.format("95 % interval " if is_first else "") in readme, (size, sampler)
        assert number.format("") in results
    shown = f"over {WORDS[len(tasks)]} of eight tasks together with batches of 64, and over {WORDS[len(of_16)]} with 16"
    assert f"higher scores with small batches**, {shown}" in readme
    assert f"SAC on {confirmation.tasks_in_words(64)}, with 16 also on Reacher and both pendulums" in readme
    others = {"Reacher", "InvertedPendulum", "InvertedDoublePendulum"}
    assert set(of_16) == {*tasks, *others} == set(confirmation.tasks_done()) | others
    of_rare, count = (
        confirmation.improvement(64, steps_per_round=confirmation.RARE),
        len(confirmation.tasks_with_rare_updates()),
    )
    assert f"with probability {of_rare}, over {WORDS[count]} of four planned tasks" in readme
    for page in (readme, text_of("docs/index.md")):
        assert f"{WORDS[len(tasks)].capitalize()} of the eight tasks of" in page
    difference = confirmation.answer(confirmation.HYPOTHESES[2])
    assert difference is not None
    assert difference.tasks == ["HalfCheetah"]
    value, low, high = (f"{abs(one):.2f}" for one in difference.interval)
    assert f"with 64 scores {value} lower (95 % interval −{low} to −{high}, where" in readme
    assert confirmation.improves_on("Walker2d", 64, steps_per_round=confirmation.RARE) == -1
    assert "on Walker2d alone it scores significantly lower" in readme
    assert f"{len(tasks)} of the eight planned tasks have run with batches of 64, {len(of_16)} with 16" in results


def test_time_to_a_score() -> None:
    assert not time_to_score.has_fresh_runs(), "say on the pages what the fresh runs show"
    for label, what in ((time_to_score.OURS, "this package's agent"), (time_to_score.IN_HOST, "Stable-Baselines3")):
        times = rf"at least {time_to_score.least_times_faster(0.9, label)} times as long as {what}"
        assert times in text_of("README.md")
        assert times.replace("Stable-Baselines3", "itself") in text_of("docs/results/index.md")
    cost = f"{time_to_score.cost_in_host()} times"
    assert f"with a batch of 64 {cost} one with its own buffer" in text_of("README.md")
    assert f"{cost} a training step of Stable-Baselines3 at batch 64" in text_of("docs/samplers/which.md")


def test_versions_and_the_size_of_the_grid() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = [line.removeprefix("torch>=") for line in project["dependencies"] if line.startswith("torch")]
    python, pages = project["requires-python"].removeprefix(">="), ("README.md", "docs/maintainers.md")
    for page in pages:
        assert re.search(rf"Python {python} (or|and) newer", text_of(page))
    assert f"# {torch} or newer" in text_of("README.md")
    assert f"torch {torch} and newer" in text_of("docs/maintainers.md")
    grid = Study()
    runs = len(grid.tasks) * len(grid.agents) * len(grid.samplers) * len(grid.seeds)
    assert f"the paper's grid: {runs} runs" in text_of("README.md")


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
    for name, key, unit in (
        ("faster than the best prioritized peer", "speedup_vs_best_prioritized_peer", "×"),
        ("faster than Stable-Baselines3's uniform buffer", "speedup_vs_sb3_uniform", "×"),
        ("time at ten million slots, relative to ten thousand", "growth_10k_to_10m", "×"),
        ("bytes per slot beside the transition itself", "overhead_bytes_per_slot", ""),
    ):
        cells = " | ".join(f"{replay[key + suffix]:.1f}{unit}" for suffix in ("", "_predictive"))
        assert f"| {name} | {cells} |" in readme
    hosts = json.loads((results / "integrations.json").read_text())
    ratios = [hosts[name] for name in ("sb3", "torchrl", "tianshou")]
    assert f"costs {min(ratios):.2f} to {max(ratios):.2f} times an update of the host library" in readme
    assert f"| {', '.join(f'{ratio:.2f}' for ratio in ratios)} |" in text_of("docs/speed.md")
    page = text_of("docs/integrations/index.md")
    for key, name in {"sb3": "Stable-Baselines3", "torchrl": "TorchRL", "tianshou": "Tianshou"}.items():
        row = f"{name} {hosts[f'{key}_version']} | {hosts[key]:.2f}× | {hosts[f'{key}_own_buffer_ms']:.1f}"
        assert f"| {row} |" in page
    for key, name in {
        "td3": "TD3, adaptive",
        "dqn_mlp_prioritized": "DQN, prioritized",
        "dqn_cnn_prioritized": "DQN on images, prioritized",
        "dqn_cnn_predictive": "DQN on images, predictive",
    }.items():
        assert f"| {name} | {hosts[f'sb3_{key}']:.2f}× | {hosts[f'sb3_{key}_own_buffer_ms']:.2g} |" in page
    assert f"{hosts['sb3_dqn_mlp_prioritized']:.2f} times with DQN's small updates" in text_of("docs/samplers/which.md")


def test_training_speed() -> None:
    page = speed_figure.PAGE.read_text()
    assert speed_figure.with_tables(page) == page
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


def test_captured_fractions_of_which_sampler(verdicts: list[dict[str, str]]) -> None:
    table = text_of("docs/samplers/which.md")
    means = {(row["task"], row["agent"], row["sampler"]): float(row["captured"]) for row in verdicts}
    for name in figures.CELLS:
        agent, task = name.split(", ")
        values = [means[f"{task}-v5", agent.lower(), sampler] for sampler in figures.SAMPLERS]
        row = " | ".join(f"{value:.2f}".replace("-", "−") for value in values)
        assert f"| {name} | {row} |" in table, name


def test_the_papers_parameters() -> None:
    page = text_of("docs/samplers/adaptive.md")
    for agent in ("ddpg", "sac"):
        for task in paper.TASKS:
            of = adaptive_of_the_paper(task, agent)
            assert of is not None
            end = "constant" if of.retention_end is None else of.retention_end
            row = f"| {of.floor} | {of.nu:,.0f} | {of.retention} | {end} |"
            name = "all eight tasks" if agent == "ddpg" else task
            assert re.search(rf"\| {agent.upper()} \| [^|]*{name}[^|]* {re.escape(row)}", page), (agent, task)


def test_the_idea_in_numbers() -> None:
    of, idea = figures.norms(), text_of("docs/idea.md")
    assert f"{of['slots']:,.0f} stored transitions" in idea
    assert f"holds {100 * of['share_of_norms']:.0f} % of the sum" in idea
    assert f"draws it {100 * of['share_of_draws']:.0f} % of the time" in idea
    assert f"has {100 * of['oracle_ratio']:.0f} % of uniform sampling's cost" in idea


def test_recorded_problems_have_the_same_numbers_on_both_pages() -> None:
    """The page on predictive selection and that on the laboratory quote one simulation."""
    own, laboratory = text_of("docs/samplers/predictive.md"), text_of("docs/laboratory.md")
    rows = re.findall(
        r"\| (256|64) \| ([\d,]+) \| [64] \| ([^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|) \*\*([\d.]+)\*\* \|", own
    )
    assert len(rows) == 4
    for batch, slots, others, predictive in rows:
        row = rf"\| {batch} \| {slots} \| shipped \|[^a-z]*\| finer \| {re.escape(others)} {predictive} \|"
        assert re.search(row, laboratory), (batch, slots)


def test_learning_curves_of_dqn() -> None:
    """The table is that of the finished runs beside it."""
    assert learn_dqn.table() in (ROOT / "results" / "dqn" / "README.md").read_text()


def test_captured_fractions_of_separate_draws() -> None:
    """The page's table is made from the published runs, and its claim of both networks holds in every cell."""
    page = network_draws.PAGE.read_text()
    assert network_draws.with_tables(page) == page
    best = network_draws.SEPARATE
    for task, agent in network_draws.RUNS:
        for network in network_draws.NETWORKS:
            own, one_draw = (network_draws.readings(task, agent, name, network) for name in (best, "predictive"))
            assert sum(own) > max(0, sum(one_draw)), (task, agent, network)
