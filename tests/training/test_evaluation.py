"""Catches test episodes whose policy is not the agent's, or whose scores depend on the process that runs them."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from aes_rl import backends
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
    return make_agent(AGENTS[kind], 4, 1, Streams([0, 1], backends.choose("numba", "cpu")))


@pytest.mark.parametrize("kind", AGENTS)
def test_the_policy_is_the_agents(kind) -> None:
    agent = agent_of(kind)
    observation = torch.randn(2, 5, 4)
    expected = agent.act_greedily(observation).numpy()
    for member in range(2):
        layers = [(weight[member], bias[member]) for weight, bias in agent.policy()]
        assert np.allclose(greedy_actions(layers, observation[member].numpy(), 1), expected[member], atol=1e-6)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_a_score_does_not_depend_on_the_workers(workers) -> None:
    agent, scores = agent_of("sac"), []
    for count in (0, workers):
        evaluator = Evaluator("InvertedPendulum-v5", 2, 3, count)
        scores += [evaluator.evaluate(agent, SEEDS), evaluator.evaluate(agent, SEEDS)]
        evaluator.close()
    for score in scores[1:]:
        assert np.array_equal(score.returns, scores[0].returns)
        assert np.array_equal(score.lengths, scores[0].lengths)
    assert len(set(scores[0].returns.flatten())) > 1


def test_rounding_does_not_depend_on_the_workers() -> None:
    """In products of these sizes rounding depends on the row, and Hopper's contacts amplify it."""
    agent = make_agent(DDPG(last_layer_bound=0.5), 11, 3, Streams([0, 1], backends.choose("numba", "cpu")))
    seeds = np.arange(20).reshape(2, 10).tolist()
    found = []
    for workers in (0, 2, 5):
        evaluator = Evaluator("Hopper-v5", 2, 10, workers)
        found.append(evaluator.evaluate(agent, seeds).returns)
        evaluator.close()
    assert np.array_equal(found[1], found[0])
    assert np.array_equal(found[2], found[0])


def test_an_evaluation_uses_the_policy_at_its_start() -> None:
    agent = agent_of("sac")
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 2)
    expected = evaluator.evaluate(agent, SEEDS)
    evaluator.start(agent, SEEDS)
    for parameter in agent.trained()["actor"].parameters():
        parameter += 1
    assert np.array_equal(evaluator.finish().returns, expected.returns)
    evaluator.close()


def test_training_continues_during_an_evaluation(tmp_path) -> None:
    """As on a GPU: the same table, byte for byte, as if training had waited."""
    config = replace(SMALL, evaluation_workers=2)
    for name, trains_meanwhile in (("waited", False), ("meanwhile", True)):
        runner = Runner(config, tmp_path / name)
        runner._trains_during_evaluation = trains_meanwhile
        is_evaluating = [runner._evaluation_steps is not None for _ in runner.steps()]
        runner.close()
        assert any(is_evaluating) == trains_meanwhile
    waited, meanwhile = ((tmp_path / name / "evaluations.csv").read_text() for name in ("waited", "meanwhile"))
    assert waited == meanwhile


def test_a_worker_that_cannot_start_says_why() -> None:
    evaluator = Evaluator("InvertedPendulum-v9", 2, 3, 1)
    with pytest.raises(RuntimeError, match="unknown task 'InvertedPendulum-v9'"):
        evaluator.evaluate(agent_of("sac"), SEEDS)
    evaluator.close()


def test_more_workers_than_episodes() -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 1, 4)
    assert evaluator.evaluate(agent_of("sac"), [[3], [6]]).returns.shape == (2, 1)
    evaluator.close()


def test_a_slow_worker_delays_only_its_own_episodes() -> None:
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


def test_without_workers_an_evaluation_during_training_is_written_soon(tmp_path) -> None:
    runner = Runner(replace(SMALL, evaluation_workers=0, evaluate_every=130, checkpoint_every=1000), tmp_path)
    runner._trains_during_evaluation = True
    scored = {step.env_step: runner.scored_step for step in runner.steps()}
    runner.close()
    assert (scored[129], scored[200], scored[260]) == (0, 130, 260)


def test_a_dead_worker_is_reported() -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 2)
    evaluator.evaluate(agent_of("sac"), SEEDS)
    os.kill(evaluator._workers[1]._process.pid, signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(RuntimeError, match=r"test episodes of InvertedPendulum-v5 \(process 1\) died"):
        evaluator.evaluate(agent_of("sac"), SEEDS)
    evaluator.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="asks Linux")
@pytest.mark.parametrize(("priority", "niceness"), [("normal", 0), ("nice", 10), ("idle", 0)])
def test_workers_have_their_scheduling_priority(priority, niceness) -> None:
    evaluator = Evaluator("InvertedPendulum-v5", 2, 3, 1, priority)
    evaluator.evaluate(agent_of("sac"), SEEDS)
    (worker,) = evaluator._workers
    own, process = os.getpriority(os.PRIO_PROCESS, 0), worker._process.pid
    assert (os.sched_getscheduler(process) == os.SCHED_IDLE) == (priority == "idle")
    assert os.getpriority(os.PRIO_PROCESS, process) == min(19, own + niceness)
    evaluator.close()


def test_without_an_idle_class_workers_are_nice(monkeypatch) -> None:
    def refuse(*_) -> None:
        raise PermissionError("a sandbox")

    given: list[int] = []
    monkeypatch.setattr("os.sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr("os.nice", given.append)
    for priority in ("normal", "nice", "idle"):
        _set_scheduling_priority(priority)
    assert given == [10, 10]


@pytest.mark.parametrize(("cores", "expected"), [(16, "idle"), (4, "idle"), (3, "nice"), (2, "nice")])
def test_workers_get_a_share_if_training_uses_every_core(cores, expected, tmp_path, monkeypatch) -> None:
    runner = Runner(replace(SMALL, workers=2), tmp_path)
    monkeypatch.setattr("aes_rl.training.runner.cores", lambda: cores)
    assert runner._evaluation_priority() == "normal"
    runner._trains_during_evaluation = True
    assert runner._evaluation_priority() == expected
    runner.close()
