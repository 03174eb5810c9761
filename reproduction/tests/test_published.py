"""Comparison of uniform replay with published runs: the page, its figure and the significance tests."""

import csv
import importlib
import json
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import tyro
from scipy.stats import mannwhitneyu

from aes_rl.agents import DDPG
from aes_rl.report.statistics import pooled_permutation_test
from aes_rl.training import Training
from tests.report.conftest import write_run

PROJECT = Path(__file__).parents[2]
COMPARE, SETTINGS, TESTS = (
    PROJECT / "reproduction" / f"{name}.py"
    for name in ("compare_with_published", "published_settings", "significance_tests")
)


@pytest.mark.parametrize(("option", "name"), [("--print", "published.md"), ("--csv", "published.csv")])
def test_the_committed_page_and_table_are_what_the_script_writes(option, name) -> None:
    made = subprocess.run([sys.executable, COMPARE, option], capture_output=True, text=True, check=True).stdout
    assert made == (PROJECT / "docs" / "results" / name).read_text()


@pytest.mark.usefixtures("scripts")
def test_the_figure_has_every_setting_that_ran_to_the_end() -> None:
    drawing = importlib.import_module("compare_with_published").figure()
    titles = {axis.get_title() for axis in drawing.axes}
    assert {"DDPG, HalfCheetah", "DDPG, Hopper", "SAC, Hopper", "SAC, Reacher"} <= titles
    assert all(len(axis.lines) >= 3 for axis in drawing.axes), "published runs, the grid's, and other settings"


def test_published_curves_are_summarised(tmp_path) -> None:
    """Ten seeds that gain 100 per evaluation, each offset by its number; the curves leave out 10,000 random steps."""
    rows = [["env_step", "rew", *(f"rew:seed_{seed}" for seed in range(10))]]
    rows += [[5000 * n, 0, *(100 * n + seed for seed in range(10))] for n in range(201)]
    curves, target = tmp_path / "curves", tmp_path / "summary.csv"
    curves.mkdir()
    (curves / "Hopper-v3_sac.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    subprocess.run([sys.executable, COMPARE, curves, target], check=True)
    with target.open(newline="") as handle:
        found = {(int(row["env_step"]), row["reading"]): row for row in csv.DictReader(handle)}
    at, last = found[100_000, "at"], found[1_000_000, "last_span"]
    assert [float(at[name]) for name in ("seeds", "lowest", "mean", "highest")] == [10, 1800, 1804.5, 1809]
    assert [float(last[name]) for name in ("lowest", "highest")] == [18850, 18859]
    assert (100_000, "last_span") not in found, "the curve begins at 10,000"


@pytest.mark.usefixtures("scripts")
def test_settings_are_described_by_the_fewest_differences() -> None:
    published = importlib.import_module("published_settings")

    def described(settings, task="Hopper-v5"):
        options = json.loads(json.dumps(asdict(settings)))
        return published.described({"task": task, "agent": "ddpg", "env_steps": 1_000_000, "ddpg": options})

    theirs = published.PUBLISHED["ddpg"]
    assert described(DDPG()) == "our defaults"
    assert described(DDPG(), "Hopper-v4") == "our defaults, task v4"
    assert described(DDPG(), "mujoco2:Hopper-v3") == "our defaults, MuJoCo 2.0 model"
    assert described(theirs) == "published settings"
    assert described(replace(theirs, batch_size=64)) == "published settings, but batch size 64"
    assert described(DDPG(warm_up_steps=25_000)) == "our defaults"
    assert described(DDPG(warm_up_steps=1000)) == "our defaults, but 1,000 random steps"
    assert (
        described(replace(theirs, critic_action_layer=1))
        == "published settings, but action after the critic's first layer"
    )
    assert described(replace(theirs, critic_first=False)) == "published settings, but critic and actor updated together"
    older = {name: value for name, value in asdict(theirs).items() if name != "critic_action_layer"}
    config = {"task": "Hopper-v5", "agent": "ddpg", "env_steps": 1_000_000, "ddpg": json.loads(json.dumps(older))}
    assert published.described(config) == "published settings, but action after the critic's first layer"


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize("agent", ["sac", "ddpg"])
def test_the_printed_options_give_the_published_settings(agent) -> None:
    argv = subprocess.run([sys.executable, SETTINGS, agent], capture_output=True, text=True, check=True).stdout.split()
    config = tyro.cli(Training, args=argv)
    assert config.agent == agent
    settings = importlib.import_module("published_settings").PUBLISHED[agent]
    assert getattr(config, agent) == settings
    assert settings.warm_up_steps is not None


def test_runs_are_compared_within_intervals(tmp_path) -> None:
    """Three seeds in one folder and two in another against ten published ones that gain 100 per 5,000 steps."""
    for name, scores in {"some": (150.5, 151.5, 700), "more": (800, 900)}.items():
        curves = {("uniform", seed): np.full(4, score) for seed, score in enumerate(scores)}
        curves["adaptive", 0] = np.full(4, 1000.0)  # other samplers are ignored
        write_run(tmp_path / name, curves, every=5000)
    theirs = tmp_path / "Hopper-v3_sac.csv"
    rows = [["env_step", *(f"rew:seed_{seed}" for seed in range(10))]]
    rows += [[5000 * n, *(100 * n + seed for seed in range(10))] for n in range(5)]
    theirs.write_text("\n".join(",".join(map(str, row)) for row in rows))
    script = [sys.executable, TESTS, f"{tmp_path / 'some'},{tmp_path / 'more'}", theirs]
    made = subprocess.run(
        [*script, "0-10000", "0-20000", "12000-14000", "0-90000"], capture_output=True, text=True, check=True
    ).stdout
    # Published curves leave out 10,000 random steps, and their first evaluation, of an untrained agent, is ignored: at
    # steps 15,000 and 20,000 they are 100 and 200 above their start, 150 on average. Of the five runs one scores higher
    # than one published run, one than two and three than all ten; two of the five are inside the published range.
    p = mannwhitneyu([0.5, 1.5, 10, 11, 12], range(10)).pvalue
    *_, line = made.splitlines()
    assert line.endswith(f"| 10000 | 20000 | 5 | 540.4 | 10 | 154.5 | 2 | {33 / 50:.2f} | {p:.3f} |")
    assert made.count("\n") == 3, "the other intervals have no steps that both sides have"

    made = subprocess.run(
        [*script, tmp_path / "more", theirs, "0-20000"], capture_output=True, text=True, check=True
    ).stdout
    p = pooled_permutation_test(
        [(np.array([0.5, 1.5, 10, 11, 12]), np.arange(10)), (np.array([10, 11]), np.arange(10))]
    )
    *_, line = made.splitlines()
    assert line.startswith("| SAC, Hopper; SAC, Hopper | together |")
    assert line.endswith(f"| {(33 / 50 + 1) / 2:.2f} | {p:.3f} |")

    write_run(tmp_path / "other", {("uniform", 0): np.full(4, 1.0)}, agent="ddpg", every=5000)
    refused = subprocess.run([*script[:2], tmp_path / "other", theirs], capture_output=True, text=True, check=False)
    assert refused.stderr.endswith("are of different cells: [('Hopper', 'ddpg'), ('Hopper', 'sac')]\n")


@pytest.mark.usefixtures("scripts")
def test_the_p_value_of_the_largest_difference_agrees_with_enumeration(tmp_path, monkeypatch) -> None:
    """Four runs against three and two against four, three evaluations each, of which the first is ignored."""
    generator = np.random.default_rng(2)
    cells = {
        agent: [generator.normal(size=(seeds, 3)) for seeds in sizes]
        for agent, sizes in [("sac", (4, 3)), ("ddpg", (2, 4))]
    }
    for agent, sides in cells.items():
        for side, scores in zip(("first", "second"), sides, strict=True):
            curves = {("uniform", seed): own for seed, own in enumerate(scores)}
            write_run(tmp_path / f"{side}-{agent}", curves, agent=agent, every=10)
    script, intervals = importlib.import_module("significance_tests"), [(10, 20), (20, 30)]
    monkeypatch.setattr(script, "SHUFFLES", 2000)
    names = [[f"{side}-{agent}" for agent in cells] for side in ("first", "second")]
    line = script.anywhere("two cells", names[0], "others", names[1], intervals, [tmp_path])

    def difference(first, second):
        """Distance of the number of wins from its mean under chance, in standard deviations."""
        pairs = len(first) * len(second)
        wins = (first[:, None] > second).sum(axis=(0, 1))
        return np.abs(wins - pairs / 2) / np.sqrt(pairs * (len(first) + len(second) + 1) / 12)

    by_chance = []
    for first, second in cells.values():
        curves, every = np.concatenate([first, second])[:, 1:], set(range(len(first) + len(second)))
        ways = [(list(way), sorted(every - set(way))) for way in combinations(sorted(every), len(first))]
        by_chance.append([difference(curves[way], curves[rest]) for way, rest in ways])
    found, other = by_chance[0][0], by_chance[1][0]
    largest, number = found.max(), found.argmax()
    expected = np.mean([max(*one, *two) >= largest - 1e-9 for one in by_chance[0] for two in by_chance[1]])
    assert largest > other.max()
    assert 0.1 < expected < 0.9
    assert line.p == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 2000))
    assert (line.cell, line.first, line.second) == ("SAC, Hopper", "anywhere, two cells", "others")
    assert (line.start, line.stop) == intervals[number]


@pytest.mark.usefixtures("scripts")
def test_the_committed_tests_follow_from_the_curves() -> None:
    """Comparisons among our own runs only: the published curves are not in the repository."""
    script = importlib.import_module("significance_tests")
    with (PROJECT / "results" / "significance_tests.csv").open(newline="") as handle:
        written = [row for row in csv.DictReader(handle) if row["second"] != "published"]
    assert len(written) > 10
    folders = [PROJECT / "results"]
    lines = [
        line
        for first, second, intervals in script.COMPARISONS
        if not second.endswith(".csv")
        for line in script.compare([(first, second)], intervals, folders)
    ]
    lines += [line for group in script.TOGETHER if group[2] != "published" for line in script.together(*group, folders)]
    again = [{name: str(value) for name, value in line.row().items()} for line in lines]
    assert again == written
