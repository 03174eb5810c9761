"""The analysis of the comparison at small batches, on made-up scores."""

import json

import numpy as np
import pytest

from aes_rl import paper
from scripts.results_pages import confirmation, data
from scripts.results_pages.confirmation import BEST, HYPOTHESES, SEEDS, Side, answer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the runs are looked for; what was read before is forgotten."""
    monkeypatch.setattr(data, "RESULTS", tmp_path)
    confirmation._curves.cache_clear()
    yield tmp_path / "small-batches"
    confirmation._curves.cache_clear()


def write(folder, task, batch_size, sampler, scores, steps_per_round=1) -> None:
    """A population with two evaluations per seed, of which the second is three times the first."""
    own = folder / f"{task}-{batch_size}-{steps_per_round}-{len(list(folder.glob('*')))}"
    own.mkdir(parents=True)
    config = {"task": f"{task}-v5", "sac": {"batch_size": batch_size}, "steps_per_round": steps_per_round}
    (own / "config.json").write_text(json.dumps(config))
    rows = [f"{step},{sampler},{seed},{part * score / 2}" for seed, score in zip(SEEDS, scores, strict=True)
            for step, part in ((100, 1), (200, 3))]  # fmt: skip
    name = f'"{sampler}"' if "," in sampler else sampler
    text = "\n".join(["env_step,sampler,seed,mean_return", *rows]).replace(f",{sampler},", f",{name},")
    (own / "evaluations.csv").write_text(text)


def test_a_probability_of_improvement_is_that_of_all_pairs(folder) -> None:
    generator, expected = np.random.default_rng(0), []
    for task in paper.TASKS:
        ours, theirs = generator.normal(1, 1, 10), generator.normal(0, 1, 10)
        write(folder, task, 16, BEST, ours)
        write(folder, task, 16, "uniform", theirs)
        expected.append(np.mean([[own > other for other in theirs] for own in ours]))
    found = answer(HYPOTHESES[0])
    assert found.interval.value == pytest.approx(np.mean(expected))
    assert 0.5 < found.interval.low < found.interval.value < found.interval.high
    assert found.p < 0.01
    assert found.verdict(HYPOTHESES[0]) == "**confirmed**"
    assert answer(HYPOTHESES[1]) is None, "nothing ran with a batch of 64"


def test_a_hypothesis_is_open_until_all_runs_of_all_tasks_are_there(folder) -> None:
    for task in paper.TASKS[1:]:
        write(folder, task, 16, BEST, np.arange(10.0))
        write(folder, task, 16, "uniform", np.arange(10.0))
    assert answer(HYPOTHESES[0]).verdict(HYPOTHESES[0]) == "open: 7 of 8 tasks"
    write(folder, paper.TASKS[0], 16, BEST, np.arange(10.0))
    assert len(answer(HYPOTHESES[0]).tasks) == 7


def test_equal_samplers_confirm_nothing(folder) -> None:
    for task in paper.TASKS:
        write(folder, task, 16, BEST, np.arange(10.0))
        write(folder, task, 16, "uniform", np.arange(10.0))
    found = answer(HYPOTHESES[0])
    assert (found.interval.value, found.verdict(HYPOTHESES[0])) == (0.5, "**not confirmed**")


@pytest.mark.parametrize(("loss", "verdict"), [(0.02, "**confirmed**"), (0.2, "**not confirmed**")])
def test_no_worse_than_uniform_replay_at_256(folder, loss, verdict) -> None:
    """The score is 0 at the mean first evaluation and 1 at the mean of uniform replay at 256, on every task."""
    spread = np.linspace(-0.02, 0.02, 10)
    for number, task in enumerate(paper.TASKS):
        scale = 10.0**number
        write(folder, task, 256, "uniform", scale * (1 + spread))
        write(folder, task, 64, "predictive", scale * (1 + spread - loss))
    hypothesis = HYPOTHESES[2]
    found = answer(hypothesis)
    first = (0.5 + 0.5 * (1 - loss)) / 2
    assert found.interval.value == pytest.approx(-loss / (1 - first))
    assert found.verdict(hypothesis) == verdict


def test_runs_with_rare_updates_are_apart(folder) -> None:
    write(folder, "Hopper", 64, BEST, np.arange(10.0) + 100, steps_per_round=8)
    assert len(confirmation.returns("Hopper", Side(BEST, 64, 8))) == 10
    assert not len(confirmation.returns("Hopper", Side(BEST, 64)))
