"""Test episodes: the policy is the agent's, whoever plays them gets the same, and nobody waits in vain."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from aes_rl import engines
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.streams import Streams
from aes_rl.training import Runner
from aes_rl.training.episode_worker import _set_scheduling_priority, greedy_actions
from aes_rl.training.evaluation import Evaluator
from tests.training.test_runs import SMALL

AGENTS = {"sac": SAC(hidden=(8, 8)), "ddpg": DDPG(hidden=(8, 8))}
SEEDS = [[3, 4, 5], [6, 7, 8]]


def agent_of(kind):
    """Two members for InvertedPendulum."""
    return make_agent(AGENTS[kind], 4, 1, Streams([0, 1], engines.choose("numba", "cpu")))


@pytest.mark.parametrize("kind", AGENTS)
def test_the_policy_is_the_agents(kind) -> None:
    agent = agent_of(kind)
    observation = torch.randn(2, 5, 4)
    expected = agent.act_greedily(observation).numpy()
    for member in range(2):
        layers = [(weight[member], bias[member]) for weight, bias in agent.policy()]
        assert np.allclose(greedy_actions(layers, observation[member].numpy(), 1), expected[member], atol=1e-6)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_a_score_does_not_depend_on_who_plays(workers) -> None:
    agent, scores = agent_of("sac"), []
    for count in (0, workers):
        evaluator = Evaluator("InvertedPendulum-v5", 2, 3, count)
        scores += [evaluator.evaluate(agent, SEEDS), evaluator.evaluate(agent, SEEDS)]
        evaluator.close()
    for score in scores[1:]:
        assert np.array_equal(score.returns, scores[0].returns)
        assert np.array_equal(score.lengths, scores[0].lengths)
    assert len(set(scores[0].returns.flatten())) > 1


def test_rounding_does_not_depend_on_who_plays() -> None:
    """Products of these sizes round a row by where it stands, and Hopper's contacts make much of it."""
    agent = make_agent(DDPG(last_layer_bound=0.5), 11, 3, Streams([0, 1], engines.choose("numba", "cpu")))
    seeds = np.arange(20).reshape(2, 10).tolist()
    found = []
    for workers in (0, 2, 5):
        evaluator = Evaluator("Hopper-v5", 2, 10, workers)
        found.append(evaluator.evaluate(agent, seeds).returns)
        evaluator.close()
    assert np.array_equal(found[1], found[0])
    assert np.array_equal(found[2], found[0])


def test_a_policy_is_played_as_it_was_at_the_start() -> None:
    agent = agent_of("sac")
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 2)
    expected = evaluator.evaluate(agent, SEEDS)
    evaluator.start(agent, SEEDS)
    for parameter in agent.trained()["actor"].parameters():
        parameter += 1
    assert np.array_equal(evaluator.finish().returns, expected.returns)
    evaluator.close()


def test_training_goes_on_beside_an_evaluation(tmp_path) -> None:
    """As on a GPU: the same table, byte for byte, as if training had waited."""
    config = replace(SMALL, evaluation_workers=2)
    for name, plays_beside in (("waited", False), ("beside", True)):
        runner = Runner(config, tmp_path / name)
        runner._trains_during_evaluation = plays_beside
        under_way = [runner._evaluation_steps is not None for _ in runner.steps()]
        runner.close()
        assert any(under_way) == plays_beside
    waited, beside = ((tmp_path / name / "evaluations.csv").read_text() for name in ("waited", "beside"))
    assert waited == beside


def test_a_player_that_cannot_start_says_why() -> None:
    evaluator = Evaluator("InvertedPendulum-v9", 2, 3, 1)
    with pytest.raises(RuntimeError, match="unknown task 'InvertedPendulum-v9'"):
        evaluator.evaluate(agent_of("sac"), SEEDS)
    evaluator.close()


def test_more_players_than_episodes() -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 1, 4)
    assert evaluator.evaluate(agent_of("sac"), [[3], [6]]).returns.shape == (2, 1)
    evaluator.close()


def test_a_slow_player_holds_up_only_what_it_plays() -> None:
    agent = agent_of("sac")
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 2)
    expected = evaluator.evaluate(agent, SEEDS)
    slow = evaluator._workers[1]._process.pid
    os.kill(slow, signal.SIGSTOP)
    evaluator.start(agent, SEEDS)
    for _ in range(200):
        assert not evaluator.is_done()
        time.sleep(0.05)
        if len(evaluator._running) == 1 and not evaluator._waiting:
            break
    assert list(evaluator._running) == [evaluator._workers[1]]
    os.kill(slow, signal.SIGCONT)
    assert np.array_equal(evaluator.finish().returns, expected.returns)
    evaluator.close()


def test_without_processes_an_evaluation_beside_training_is_written_soon(tmp_path) -> None:
    runner = Runner(replace(SMALL, evaluation_workers=0, evaluate_every=130, checkpoint_every=1000), tmp_path)
    runner._trains_during_evaluation = True
    scored = {step.env_step: runner.scored_step for step in runner.steps()}
    runner.close()
    assert (scored[129], scored[200], scored[260]) == (0, 130, 260)


def test_a_dead_player_is_told() -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 2)
    evaluator.evaluate(agent_of("sac"), SEEDS)
    os.kill(evaluator._workers[1]._process.pid, signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(RuntimeError, match=r"test episodes of InvertedPendulum-v5 \(process 1\) died"):
        evaluator.evaluate(agent_of("sac"), SEEDS)
    evaluator.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="asks Linux")
@pytest.mark.parametrize(("priority", "niceness"), [("normal", 0), ("nice", 10), ("idle", 0)])
def test_players_set_scheduling_priority_for_who_trains(priority, niceness) -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 1, priority)
    evaluator.evaluate(agent_of("sac"), SEEDS)
    (worker,) = evaluator._workers
    own, player = os.getpriority(os.PRIO_PROCESS, 0), worker._process.pid
    assert (os.sched_getscheduler(player) == os.SCHED_IDLE) == (priority == "idle")
    assert os.getpriority(os.PRIO_PROCESS, player) == min(19, own + niceness)
    evaluator.close()


def test_where_there_is_no_idle_class_players_are_nice(monkeypatch) -> None:
    def refuse(*_) -> None:
        raise PermissionError("a sandbox")

    given: list[int] = []
    monkeypatch.setattr("os.sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr("os.nice", given.append)
    for priority in ("normal", "nice", "idle"):
        _set_scheduling_priority(priority)
    assert given == [10, 10]


@pytest.mark.parametrize(("cores", "expected"), [(16, "idle"), (4, "idle"), (3, "nice"), (2, "nice")])
def test_players_are_left_a_core(cores, expected, tmp_path, monkeypatch) -> None:
    runner = Runner(replace(SMALL, workers=2), tmp_path)
    monkeypatch.setattr("aes_rl.training.runner.cores", lambda: cores)
    assert runner._evaluation_priority() == "normal"
    runner._trains_during_evaluation = True
    assert runner._evaluation_priority() == expected
    runner.close()
