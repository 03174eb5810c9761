"""Recorded problems hold the agent's own norms, and samplers get the right scores on them."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from aes_rl import Adaptive, LastValue, Predictive, Prioritized, Uniform
from aes_rl.agents import SAC
from aes_rl.errors import UserError
from aes_rl.lab import recorded
from aes_rl.lab.measure import expected_norms
from aes_rl.lab.recorded import PROBLEMS, Facts, RecordedProblem
from aes_rl.lab.score import Clock, expected, in_rounds, recorded_signals, score_of
from aes_rl.lab.variance import captured_fraction
from aes_rl.samplers.geometric import Geometric
from aes_rl.training import Runner, Training

SMALL = Training(
    task="InvertedPendulum-v5",
    samplers=("uniform",),
    env_steps=900,
    capacity=600,
    trace_every=100,
    traced_slots=300,
    evaluate_every=900,
    evaluation_episodes=1,
    sac=SAC(hidden=(8, 8), batch_size=16, warm_up_steps=100),
)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """A short run whose buffer is full and overwritten, with the exact norms at its end."""
    directory = tmp_path_factory.mktemp("run")
    runner = Runner(SMALL, directory)
    for _ in runner.steps():
        pass
    run = runner.state
    exact = expected_norms(run.agent, run.replay, np.arange(0, 600, 2), 4, seed=900).total[0]
    runner.close()
    return recorded.load(directory / "trace"), exact


def lognormal(moments=30, slots=400, thinning=4, is_lasting=True, seed=0):
    """A synthetic record: lognormal norms that are constant, or independent at every moment."""
    generator = np.random.default_rng(seed)
    logs = 2 * np.broadcast_to(generator.normal(size=(1 if is_lasting else moments, slots)), (moments, slots))
    facts = Facts("made-up", "none", 0, slots * thinning, 64, slots * thinning, thinning)
    insertions = slots * thinning + 100 * np.arange(1, moments + 1)
    # The clock counts insertions, so slots would be overwritten; a capacity never reached keeps them.
    facts = replace(facts, warm_up_steps=slots * thinning, capacity=slots * thinning + int(insertions[-1]))
    whole = np.full((moments, 1, Clock(RecordedProblem(facts, insertions, {}, logs)).slots), -np.inf)
    whole[:, 0, :slots] = logs
    return RecordedProblem(facts, insertions, {"all": whole.astype(np.float16)}, (whole / 2).astype(np.float16))


def test_a_record_holds_the_agents_own_norms(short_run) -> None:
    problem, exact = short_run
    assert problem.facts.thinning == 2
    assert problem.insertions.tolist() == list(range(100, 1000, 100))
    assert problem.logs.shape == problem.errors.shape == (9, 4, 300)
    torch.testing.assert_close(expected(problem, -1, 300), exact, rtol=5e-3, atol=0)
    assert np.isinf(problem.logs[1, :, 100:]).all()
    assert np.isfinite(problem.logs[1, :, :100]).all()


def test_a_burst_records_fast_changes(tmp_path) -> None:
    """Each recording is followed by others; between two of a burst, a slot's signal is one of theirs."""
    runner = Runner(replace(SMALL, trace_every=300, trace_burst=3, trace_burst_every=40), tmp_path)
    for _ in runner.steps():
        pass
    runner.close()
    problem = recorded.load(tmp_path / "trace")
    assert problem.insertions.tolist() == [300, 340, 380, 600, 640, 680, 900]
    slots, logs = np.arange(20, 100), problem.networks["critic"]
    signals = recorded_signals(problem, Clock(problem), slots, 360, np.random.default_rng(0))
    found = signals.gradient_norm["critic"][0].numpy() / problem.facts.thinning
    of_burst = np.exp(logs[1:3, :, slots].astype(np.float64)).reshape(-1, len(slots))
    assert np.isclose(found, of_burst, rtol=1e-6).any(axis=0).all()
    assert not np.isclose(found, of_burst[: logs.shape[1]], rtol=1e-6).any(axis=0).all(), "only from one moment"


def test_a_burst_that_is_longer_than_the_time_between_bursts_is_refused() -> None:
    with pytest.raises(ValueError, match="trace_burst is 3 with 50 steps between its recordings"):
        replace(SMALL, trace_burst=3, trace_burst_every=50)


def test_packed_records_are_the_recorded_ones(short_run, tmp_path) -> None:
    problem, _ = short_run
    problem.save(tmp_path / "problem.safetensors")
    again = recorded.load(tmp_path / "problem.safetensors")
    assert again.facts == problem.facts
    assert set(again.networks) == {"actor", "critic"}
    assert all(np.array_equal(again.networks[name], part) for name, part in problem.networks.items())
    thin = problem.thinned(3, every=2)
    assert thin.facts.thinning == 6
    assert np.array_equal(thin.errors, problem.errors[1::2, :, ::3])


@pytest.mark.parametrize("insertions", [1, 2, 599, 600, 601, 900])
def test_the_clock_writes_what_a_buffer_writes(short_run, insertions) -> None:
    clock = Clock(short_run[0])
    content = {}
    for number in range(insertions):
        content[number % 600] = number
    slots = np.array([slot // 2 for slot in sorted(content) if slot % 2 == 0])
    assert clock.written(insertions) == sum(number % 600 % 2 == 0 for number in range(insertions))
    assert clock.last_written(slots, insertions).tolist() == [content[2 * slot] for slot in slots]


def test_signals_belong_to_the_slots_present_content(short_run) -> None:
    """Insertion 650 falls between the moments 600 and 700; only the later one has what the slots below 50 hold."""
    moments = np.arange(9, dtype=np.float16).reshape(9, 1, 1)
    problem = replace(short_run[0], networks={"all": np.broadcast_to(moments, (9, 4, 300))})
    clock, slots = Clock(problem), np.arange(300)
    seen = {5: np.zeros(300, bool), 6: np.zeros(300, bool)}
    for seed in range(60):
        norms = (
            recorded_signals(problem, clock, slots, 650, np.random.default_rng(seed)).gradient_norm["all"][0].numpy()
        )
        for moment, mark in seen.items():
            mark |= np.isclose(norms, 2 * np.exp(moment))
    assert not seen[5][:25].any()
    assert seen[6][:25].all()
    assert not seen[6][25:50].any()  # overwritten by insertion 700
    assert seen[5][25:].all()
    assert seen[6][50:].all()


def test_uniform_scores_zero_and_the_oracle_one(short_run) -> None:
    for problem in (short_run[0], lognormal()):
        assert all(abs(point.captured_fraction) < 1e-9 for point in score_of(Uniform(), problem))
        norms = expected(problem, -1, 300)
        norms = norms[norms > 0]
        best = norms.sqrt() / norms.sqrt().sum()
        assert captured_fraction(norms, best).item() == pytest.approx(1)
        assert 0 < score_of(Uniform(), problem)[-1].oracle_ratio < 1


SHIPPED = {
    "halfcheetah-ddpg": ("HalfCheetah-v5", "ddpg", 1024, 1_000_000),
    "halfcheetah-sac": ("HalfCheetah-v5", "sac", 1024, 1_000_000),
    "hopper-ddpg": ("Hopper-v5", "ddpg", 512, 1_000_000),
    "hopper-sac": ("Hopper-v5", "sac", 1024, 1_000_000),
    "invertedpendulum-sac": ("InvertedPendulum-v5", "sac", 512, 300_000),
    "walker2d-sac": ("Walker2d-v5", "sac", 1024, 416_000),
}
FINER = Path(__file__).parents[2] / "results" / "problems"
"""The records that the shipped ones were thinned from."""


@pytest.mark.parametrize("directory", [PROBLEMS, FINER])
def test_no_recorded_problem_is_forgotten(directory) -> None:
    assert {path.stem for path in directory.glob("*")} == set(SHIPPED)


def test_the_shipped_problems_are_small() -> None:
    assert sum(path.stat().st_size for path in PROBLEMS.glob("*")) < 2_400_000


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_problems_are_thinned_copies_of_the_finer_ones(name) -> None:
    shipped, finer = (recorded.load(folder / f"{name}.safetensors") for folder in (PROBLEMS, FINER))
    factor, every = shipped.facts.thinning // finer.facts.thinning, len(finer.insertions) // len(shipped.insertions)
    thinned = finer.thinned(factor, every)
    assert shipped.facts == thinned.facts
    assert np.array_equal(shipped.insertions, thinned.insertions)
    assert np.array_equal(shipped.errors, thinned.errors)
    assert all(np.array_equal(shipped.networks[network], part) for network, part in thinned.networks.items())


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_problems(name) -> None:
    """Facts match the name; uniform scores 0, the oracle 1; the predictive sampler scores above 0.6."""
    problem = recorded.load(PROBLEMS / f"{name}.safetensors")
    task, agent, thinning, steps = SHIPPED[name]
    assert (problem.facts.task, problem.facts.agent, problem.facts.thinning) == (task, agent, thinning)
    assert steps - 16_000 < problem.insertions[-1] <= steps
    points = score_of(Uniform(), problem, batch_size=32)
    assert all(abs(point.captured_fraction) < 1e-9 for point in points)
    for moment in range(len(problem.insertions)):
        norms = expected(problem, moment, problem.errors.shape[-1])
        norms = norms[norms > 0]
        assert len(norms) > 0.99 * problem.insertions[moment] / thinning
        assert captured_fraction(norms, norms.sqrt() / norms.sqrt().sum()).item() == pytest.approx(1)
    learned = score_of(Predictive(), problem, batch_size=256)
    assert np.mean([point.captured_fraction for point in learned[len(learned) // 2 :]]) > 0.6


@pytest.mark.parametrize("config", [LastValue(floor=0.01), Predictive(floor=0.01)])
def test_constant_norms_are_learned(config) -> None:
    assert score_of(config, lognormal())[-1].captured_fraction > 0.9


def test_predictive_beats_last_value_on_independent_norms() -> None:
    """Trusting the last value costs variance where nothing lasts; a forecast does not."""
    problem = lognormal(is_lasting=False)
    forecast, last = score_of(Predictive(), problem), score_of(LastValue(), problem)
    assert np.mean([p.captured_fraction for p in forecast]) > np.mean([p.captured_fraction for p in last])


def test_options_that_count_updates_are_scaled() -> None:
    assert in_rounds(Adaptive(), 8.0, 128, 1_000_000) == Adaptive(forget_every=125, overwrite="fifo")
    assert in_rounds(Predictive(refresh_every=4), 8.0, 128, 100).refresh_every == 1
    assert in_rounds(Prioritized(), 8.0, 128, 100) == Prioritized()
    assert in_rounds(Geometric(mean_age=6400, refresh_every=80), 8.0, 128, 100) == Geometric(50, refresh_every=10)


def test_selection_by_age_scores_alike_on_a_thinner_record() -> None:
    """Ages count insertions of the real buffer, not recorded slots."""
    problem, config = lognormal(), Geometric(mean_age=200 * lognormal().facts.thinning, floor=0.1)
    whole, thinned = (
        np.mean([p.captured_fraction for p in score_of(config, one)]) for one in (problem, problem.thinned(2))
    )
    assert whole < -0.1
    assert thinned == pytest.approx(whole, rel=0.35)


def test_a_first_member_that_overwrites_at_random_is_refused() -> None:
    with pytest.raises(ValueError, match="trace_every needs a first sampler that overwrites the oldest slot"):
        replace(SMALL, samplers=("adaptive",))


def test_several_updates_a_step_are_refused() -> None:
    with pytest.raises(ValueError, match="one update per environment step"):
        replace(SMALL, updates_per_round=2)


def test_a_record_of_too_few_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="no moment with 200 recorded slots"):
        score_of(Uniform(), lognormal(moments=2, slots=100))


def test_an_empty_folder_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="holds no recorded problem"):
        recorded.load(tmp_path)


@pytest.mark.parametrize(
    ("sampler", "line"),
    [("laber", "a simulation has no learner"), ("predictive:networks=separate", "a simulation draws once")],
)
def test_a_sampler_of_which_a_simulation_would_see_a_part_is_refused(sampler, line) -> None:
    """The first stage alone is uniform, and one draw alone follows the sum of all norms: other samplers."""
    with pytest.raises(UserError, match=line):
        score_of(sampler, lognormal())


def test_a_damaged_record_is_one_line(short_run, tmp_path) -> None:
    problem, _ = short_run
    (tmp_path / "text.safetensors").write_text("not a record")
    with pytest.raises(UserError, match="is not a recorded problem, or damaged"):
        recorded.load(tmp_path / "text.safetensors")
    for change, message in (
        ({"unknown": 1}, "unknown option"),
        ({"thinning": 0}, "thinning is 0; it must be a whole number"),
        ({"version": 1}, "has version 1; this program reads version 2"),
    ):
        facts = {**asdict(problem.facts), **change}
        tensors = {"insertions": problem.insertions, "errors": problem.errors}
        save_file(tensors, tmp_path / "other.safetensors", metadata={"facts": json.dumps(facts)})
        with pytest.raises(UserError, match=message):
            recorded.load(tmp_path / "other.safetensors")


def test_a_record_that_would_fill_memory_is_refused(tmp_path, monkeypatch) -> None:
    """Every moment would be padded to the slots of the last one."""
    problem = lognormal()
    monkeypatch.setattr(recorded, "_MOST_NUMBERS", 3 * problem.errors.size)
    problem.save(tmp_path / "whole.safetensors")
    assert recorded.load(tmp_path / "whole.safetensors").errors.shape == problem.errors.shape
    (tmp_path / "trace").mkdir()
    for number in range(len(problem.insertions)):
        one = recorded.RecordedProblem(
            problem.facts,
            problem.insertions[number : number + 1],
            {name: part[number : number + 1, :, : 1 + number] for name, part in problem.networks.items()},
            problem.errors[number : number + 1, :, : 1 + number],
        )
        one.save(tmp_path / "trace" / f"{number:03d}.safetensors")
    monkeypatch.setattr(recorded, "_MOST_NUMBERS", 2 * 30 * 30)
    with pytest.raises(UserError, match="takes the record beyond"):
        recorded.load(tmp_path / "trace")


def test_a_linked_record_in_a_run_is_not_read(tmp_path) -> None:
    lognormal().save(tmp_path / "elsewhere.safetensors")
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "1.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(UserError, match="symbolic link"):
        recorded.load(tmp_path / "trace")
