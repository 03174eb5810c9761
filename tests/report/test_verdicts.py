"""Less variance, higher score? And the published tables, rebuilt from a part of what they were made of."""

import csv
import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from aes_rl.agents import DDPG
from aes_rl.cli import main
from aes_rl.report.load import load
from aes_rl.report.statistics import pooled_permutation_test
from aes_rl.report.verdicts import together, together_as_csv, verdicts
from tests.report.conftest import write_run

PROJECT = Path(__file__).parents[2]


def write_readings(directory, captured) -> None:
    with (directory / "metrics.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["env_step", "update_step", "sampler", "seed", "metric", "value"])
        for (sampler, seed), values in captured.items():
            for number, value in enumerate(values, 1):
                writer.writerow([number * 1000, number, sampler, seed, "captured_fraction", value])
                writer.writerow([number * 1000, number, sampler, seed, "captured_fraction_actor", -value])


def test_a_sampler_that_is_better_worse_or_the_same(tmp_path) -> None:
    generator, seeds = np.random.default_rng(0), (2, 20, 200, 2000, 20000)
    shifts = {"uniform": 0, "adaptive": 300, "predictive": -300, "prioritized": 0}
    scores = {
        (sampler, seed): 1000 + shift + generator.normal(0, 30, 4)
        for sampler, shift in shifts.items()
        for seed in seeds
    }
    write_run(tmp_path / "run", scores)
    captured = {("adaptive", seed): [9.0, 9.0, 0.4, 0.6] for seed in seeds}
    captured |= {("predictive", seed): [0.0, 0.0, -0.1, 0.1 if seed == 2 else -0.2] for seed in seeds}
    write_readings(tmp_path / "run", captured)
    found = {one.sampler: one for one in verdicts(load(tmp_path), window=2)}
    assert set(found) == {"adaptive", "predictive", "prioritized"}
    adaptive, predictive, prioritized = (found[name] for name in ("adaptive", "predictive", "prioritized"))
    assert adaptive.captured == pytest.approx(0.5)
    assert adaptive.by_network == {"actor": pytest.approx(-0.5)}
    assert adaptive.variance_in_words() == "less on every seed"
    assert adaptive.score_in_words() == adaptive.training_in_words() == "higher"
    assert predictive.variance_in_words() == "not less"
    assert predictive.score_in_words() == "lower"
    assert prioritized.variance_in_words() == "not measured"
    assert prioritized.score_in_words() == "not told apart"
    means = [np.mean(scores["adaptive", seed][-2:]) for seed in seeds]
    assert adaptive.final == pytest.approx(np.mean(means))


def test_what_one_task_leaves_open_two_may_tell(tmp_path) -> None:
    """Four wins of five on each task: p 0.15 alone, and less together."""
    own, other = [1.0, 3.0, 4.0, 5.0, 6.0], [2.0, 2.1, 2.2, 2.3, 2.4]
    seeds = (2, 20, 200, 2000, 20000)
    sides = {"uniform": other, "adaptive": own}
    scores = {
        (sampler, seed): [score] * 4 for sampler, side in sides.items() for seed, score in zip(seeds, side, strict=True)
    }
    write_run(tmp_path / "hopper", scores)
    write_run(tmp_path / "walker", scores, task="Walker2d-v5")
    write_run(tmp_path / "alone", {key: side for key, side in scores.items() if key[0] == "uniform"}, task="Ant-v5")
    results = load(tmp_path)
    (found,) = together(results, window=2)
    assert (found.sampler, found.other, found.tasks) == ("adaptive", "uniform", 2)
    assert found.final_improvement == found.training_improvement == pytest.approx(0.8)
    alone = [one.final_p for one in verdicts(results, window=2) if one.seeds == 5]
    assert found.final_p < 0.05 < min(alone)


def test_few_seeds_and_missing_readings(tmp_path) -> None:
    scores = {(sampler, seed): [base] * 4 for sampler, base in (("uniform", 1.0), ("adaptive", 2.0)) for seed in (1, 2)}
    write_run(tmp_path / "run", scores)
    write_readings(tmp_path / "run", {("adaptive", 1): [0.5] * 4, ("adaptive", 2): [float("nan")] * 4})
    (found,) = verdicts(load(tmp_path), window=1)
    assert found.score_in_words() == "too few seeds"
    assert found.variance_in_words() == "less on 1 of 2 seeds, the rest not measured"
    assert found.captured == 0.5
    assert found.by_network == {"actor": -0.5}


def test_the_published_tables_are_what_the_published_runs_say(tmp_path) -> None:
    """One cell alone gives the lines that stand in the documentation for it."""
    cell = sorted((PROJECT / "results" / "grid").iterdir())[0]
    shutil.copytree(cell, tmp_path / "grid" / cell.name)
    main(["report", str(tmp_path / "grid"), "--output", str(tmp_path / "rebuilt")])
    for name in ("measures.csv", "verdicts.csv"):
        rebuilt, published = (read(folder / name) for folder in (tmp_path / "rebuilt", PROJECT / "docs" / "results"))
        assert rebuilt
        for key, numbers in rebuilt.items():
            assert published[key] == numbers, (name, key)


def test_the_published_comparisons_over_all_tasks_are_what_the_published_runs_say() -> None:
    made = together(load(PROJECT / "results" / "grid"), window=10)
    assert together_as_csv(made) == (PROJECT / "docs" / "results" / "together.csv").read_text()


def test_the_page_beside_published_runs_is_what_the_script_writes() -> None:
    made = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "beside_published.py", "--print"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made == (PROJECT / "docs" / "results" / "published.md").read_text()


def test_the_figure_beside_published_runs_has_what_was_tried_to_the_end() -> None:
    drawing = runpy.run_path(str(PROJECT / "scripts" / "beside_published.py"))["figure"]()
    titles = {axis.get_title() for axis in drawing.axes}
    assert {"DDPG, HalfCheetah", "DDPG, Hopper", "SAC, Hopper", "SAC, Reacher"} <= titles
    assert all(len(axis.lines) >= 3 for axis in drawing.axes), "published, the grid's, and what was tried"


def test_published_curves_are_summarised(tmp_path) -> None:
    """Ten seeds that rise by a hundred an evaluation, each by its number higher, 10,000 steps uncounted."""
    rows = [["env_step", "rew", *(f"rew:seed_{seed}" for seed in range(10))]]
    rows += [[5000 * n, 0, *(100 * n + seed for seed in range(10))] for n in range(201)]
    curves, target = tmp_path / "curves", tmp_path / "summary.csv"
    curves.mkdir()
    (curves / "Hopper-v3_sac.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    subprocess.run([sys.executable, PROJECT / "scripts" / "beside_published.py", curves, target], check=True)
    with target.open(newline="") as handle:
        found = {(int(row["env_step"]), row["reading"]): row for row in csv.DictReader(handle)}
    at, last = found[100_000, "at"], found[1_000_000, "last_span"]
    assert [float(at[name]) for name in ("seeds", "lowest", "mean", "highest")] == [10, 1800, 1804.5, 1809]
    assert [float(last[name]) for name in ("lowest", "highest")] == [18850, 18859]
    assert (100_000, "last_span") not in found, "it begins at 10,000"


def test_settings_are_told_by_the_least_that_differs() -> None:
    published = runpy.run_path(str(PROJECT / "scripts" / "beside_published.py"))

    def described(settings, task="Hopper-v5"):
        options = json.loads(json.dumps(asdict(settings)))
        return published["_described"]({"task": task, "agent": "ddpg", "env_steps": 1_000_000, "ddpg": options})

    theirs = published["PUBLISHED"]["ddpg"]
    assert described(DDPG()) == "as here"
    assert described(DDPG(), "Hopper-v4") == "as here, v4 of the task"
    assert (
        described(DDPG(), "mujoco2:Hopper-v3") == "as here, v3 of the task with the masses and contacts of MuJoCo 2.0"
    )
    assert described(theirs) == "as published"
    assert described(replace(theirs, batch_size=64)) == "as published but batch size 64"
    assert described(DDPG(warm_up_steps=25_000)) == "as here"
    assert described(DDPG(warm_up_steps=1000)) == "as here but warm up steps 1000"
    assert described(replace(theirs, critic_action_layer=1)) == "as published but critic action layer 1"
    assert described(replace(theirs, critic_first=False)) == "as published but critic first off"
    older = {name: value for name, value in asdict(theirs).items() if name != "critic_action_layer"}
    config = {"task": "Hopper-v5", "agent": "ddpg", "env_steps": 1_000_000, "ddpg": json.loads(json.dumps(older))}
    assert published["_described"](config) == "as published but critic action layer 1"


def test_runs_are_told_apart_within_intervals(tmp_path) -> None:
    """Three seeds in one folder and two in another, beside ten published ones that gain a hundred every 5,000 steps."""
    for name, scores in {"some": (150.5, 151.5, 700), "more": (800, 900)}.items():
        curves = {("uniform", seed): np.full(4, score) for seed, score in enumerate(scores)}
        curves["adaptive", 0] = np.full(4, 1000.0)  # another sampler's do not count
        write_run(tmp_path / name, curves, every=5000)
    theirs = tmp_path / "Hopper-v3_sac.csv"
    rows = [["env_step", *(f"rew:seed_{seed}" for seed in range(10))]]
    rows += [[5000 * n, *(100 * n + seed for seed in range(10))] for n in range(5)]
    theirs.write_text("\n".join(",".join(map(str, row)) for row in rows))
    script = [sys.executable, PROJECT / "scripts" / "told_apart.py", f"{tmp_path / 'some'},{tmp_path / 'more'}", theirs]
    made = subprocess.run(
        [*script, "0-10000", "0-20000", "12000-14000", "0-90000"], capture_output=True, text=True, check=True
    ).stdout
    # Published steps leave out 10,000 random ones and begin with an agent that has learned nothing, which does not
    # count: at 15,000 and 20,000 here they have 100 and 200 more than at their start, a mean of 150. Of the five one
    # beats one published run, one two and three all ten; two of the five are inside.
    p = mannwhitneyu([0.5, 1.5, 10, 11, 12], range(10)).pvalue
    *_, line = made.splitlines()
    assert line.endswith(f"| 10000 | 20000 | 5 | 540.4 | 10 | 154.5 | 2 | {33 / 50:.2f} | {p:.3f} |")
    assert made.count("\n") == 3, "the other intervals have steps that one of them has not"

    made = subprocess.run(
        [*script, tmp_path / "more", theirs, "0-20000"], capture_output=True, text=True, check=True
    ).stdout
    p = pooled_permutation_test(
        [(np.array([0.5, 1.5, 10, 11, 12]), np.arange(10)), (np.array([10, 11]), np.arange(10))]
    )
    *_, line = made.splitlines()
    assert line.startswith("| together |")
    assert line.endswith(f"| {(33 / 50 + 1) / 2:.2f} | {p:.3f} |")

    write_run(tmp_path / "other", {("uniform", 0): np.full(4, 1.0)}, agent="ddpg", every=5000)
    refused = subprocess.run([*script[:2], tmp_path / "other", theirs], capture_output=True, text=True, check=False)
    assert refused.stderr.endswith("are of different cells: [('Hopper', 'ddpg'), ('Hopper', 'sac')]\n")


def test_what_was_told_apart_is_what_the_curves_say(monkeypatch) -> None:
    """Of the comparisons among our own runs, whose curves are here; those with published curves need these."""
    monkeypatch.syspath_prepend(PROJECT / "scripts")
    script = runpy.run_path(str(PROJECT / "scripts" / "told_apart.py"))
    with (PROJECT / "results" / "told_apart.csv").open(newline="") as handle:
        written = [row for row in csv.DictReader(handle) if "/" in row["second"]]
    assert len(written) > 10
    again = [
        {"cell": cell, **{name: str(value) for name, value in line.words().items()}}
        for cell, first, second, intervals in script["COMPARISONS"]
        if not second.endswith(".csv")
        for line in script["compare"]([(first, second)], intervals, [PROJECT / "results"])
    ]
    assert again == written


def read(path):
    """Every line by task, agent and sampler, its numbers to nine digits."""
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    return {
        (row.pop("task"), row.pop("agent"), row.pop("sampler")): {k: short(v) for k, v in row.items()} for row in rows
    }


def short(text):
    try:
        return f"{float(text):.9g}"
    except ValueError:
        return text
