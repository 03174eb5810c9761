"""Lower variance, higher score? And the published tables, rebuilt from a part of what they were made of."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from aes_rl.cli import main
from aes_rl.report.load import load
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
    assert adaptive.variance_in_words() == "lower on every seed"
    assert adaptive.score_in_words() == adaptive.training_in_words() == "higher"
    assert predictive.variance_in_words() == "not lower"
    assert predictive.score_in_words() == "lower"
    assert prioritized.variance_in_words() == "not measured"
    assert prioritized.score_in_words() == "no significant difference"
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
    assert found.variance_in_words() == "lower on 1 of 2 seeds, the others not measured"
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
