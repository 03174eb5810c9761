"""Catches invalid values from environments that go unnoticed, and environments that end their process silently."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from aes_rl.agents import SAC
from aes_rl.cli import main
from aes_rl.training import Runner, Training
from aes_rl.training.evaluation import Evaluator
from aes_rl.training.vector import simulator
from aes_rl.training.vector.environments import Environments

MODULE = "tests.training.vector.strange_tasks"
SMALL = Training(
    task="InvertedPendulum-v5",
    samplers=("uniform",),
    env_steps=60,
    capacity=50,
    evaluate_every=1000,
    evaluation_episodes=1,
    longest_evaluation=20,
    log_every=10,
    checkpoint_every=1000,
    sac=SAC(hidden=(4, 4), batch_size=4, warm_up_steps=15),
)


def steps_of(task: str, workers: int) -> None:
    environments = Environments(f"{MODULE}:{task}", [0, 1], workers)
    try:
        for _ in range(20):
            environments.send(np.zeros((2, 1), np.float32))
            environments.receive()
    finally:
        environments.close()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("ShortObservation-v0", r"observation of member 0 is float32 \(1,\); its space says numbers \(2,\)"),
        ("TextObservation-v0", "observation of member 0 is <U1"),
        ("TextReward-v0", "the reward of member 0 is '1.0'; it must be a number"),
        ("TextEnd-v0", "terminated of member 0 is 'False'"),
        ("TextTruncation-v0", "truncated of member 0 is 'False'"),
        ("Exiting-v0", r"environment of member 0 ended its process in step \(SystemExit\(0\)\)"),
        ("ExitingInReset-v0", r"environment of member 0 ended its process in reset \(SystemExit\(0\)\)"),
        ("ExitingAtOnce-v0", r"task '.*:ExitingAtOnce-v0' ended its process while it was made \(SystemExit\(0\)\)"),
    ],
)
def test_invalid_transitions_are_rejected(task, message, workers) -> None:
    with pytest.raises(RuntimeError, match=message):
        steps_of(task, workers)


def test_a_number_that_is_not_finite_stops_the_run_at_its_step(tmp_path) -> None:
    runner = Runner(replace(SMALL, task=f"{MODULE}:InfiniteObservation-v0", workers=0), tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"observation of member 0 is not finite: \[0\.0, inf\] at step 11"):
        list(runner.steps())
    runner.close()


def test_a_critic_that_has_diverged_stops_the_run(tmp_path) -> None:
    runner = Runner(replace(SMALL, task=f"{MODULE}:HugeReward-v0", workers=0), tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"loss of uniform, seed 0 is (inf|nan) at step \d+: it has diverged"):
        list(runner.steps())
    runner.close()


def test_a_critic_that_has_diverged_in_the_last_step_stops_a_run_that_logs_rarely(tmp_path) -> None:
    config = replace(SMALL, task=f"{MODULE}:HugeReward-v0", workers=0, log_every=1000)
    runner = Runner(config, tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"loss of uniform, seed 0 is (inf|nan) at step 60: it has diverged"):
        list(runner.steps())
    runner.close()


def test_a_critic_that_has_diverged_stops_a_run_whose_rows_fall_between_updates(tmp_path) -> None:
    config = replace(SMALL, task=f"{MODULE}:HugeReward-v0", workers=0, steps_per_round=4, log_every=10, env_steps=400)
    assert (config.log_every - 1 - config.warm_up_steps) % config.steps_per_round
    runner = Runner(config, tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"loss of uniform, seed 0 is (inf|nan) at step \d+: it has diverged"):
        list(runner.steps())
    runner.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_test_episode_without_an_end_is_cut_off(workers, tmp_path) -> None:
    config = replace(SMALL, task=f"{MODULE}:Endless-v0", workers=0, evaluation_workers=workers, evaluate_every=20)
    runner = Runner(config, tmp_path / "run")
    list(runner.steps())
    runner.close()
    rows = (tmp_path / "run" / "evaluations.csv").read_text().splitlines()[1:]
    assert [row.split(",")[-1] for row in rows] == ["20.0"] * 3


def test_evaluating_a_run_cuts_off_episodes_without_an_end(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("AES_RL_MODULES", MODULE)
    runner = Runner(replace(SMALL, task=f"{MODULE}:Endless-v0", workers=0), tmp_path / "run")
    list(runner.steps())
    runner.close()
    main(["evaluate", str(tmp_path / "run"), "--episodes", "1"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "uniform" in line]
    assert row.split("│")[-2].strip() == "20"


class Still:
    """An agent of one member that always takes action 0."""

    def policy(self):
        return [(np.zeros((1, 2, 1), np.float32), np.zeros((1, 1), np.float32))]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("ShortObservation-v0", r"observation of member 0 is float32 \(1,\)"),
        ("InfiniteObservation-v0", "test observation of member 0 is not finite"),
        ("TextReward-v0", "the reward of member 0 is '1.0'"),
        ("InfiniteReward-v0", "test episode of member 0 has the return inf"),
        ("TextEnd-v0", "terminated of member 0 is 'False'"),
        ("TextTruncation-v0", "truncated of member 0 is 'False'"),
        ("Exiting-v0", r"environment of member 0 ended its process in step \(SystemExit\(0\)\)"),
    ],
)
def test_test_episodes_are_checked_too(task, message, workers) -> None:
    evaluator = Evaluator(f"{MODULE}:{task}", 1, 1, workers, max_steps=20)
    with pytest.raises(RuntimeError, match=message):
        evaluator.evaluate(Still(), [[0]])
    evaluator.close()


def test_a_simulator_without_a_time_limit_continues_from_a_checkpoint() -> None:
    task = f"{MODULE}:EndlessPendulum-v0"
    original, restored = simulator.make(task), simulator.make(task)
    original.reset(seed=0)
    saved = simulator.save(original)
    assert saved is not None
    simulator.restore(restored, saved)
    action = np.full(1, 0.1, np.float32)
    assert np.array_equal(original.step(action)[0], restored.step(action)[0])


def test_the_state_of_a_wrapped_simulator_is_not_saved() -> None:
    """A wrapper may have any state: only a new episode is a correct continuation."""
    import gymnasium

    inner = simulator.make("InvertedPendulum-v5")
    wrapped = gymnasium.wrappers.DelayObservation(inner, 2)
    wrapped.reset(seed=0)
    assert simulator.save(wrapped) is None


def run_command(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aes_rl", *words], capture_output=True, text=True, timeout=120, check=False, **options
    )


def options_for(task: str) -> list[str]:
    return [
        *("--task", f"{MODULE}:{task}", "--samplers", "uniform", "--env-steps", "60", "--capacity", "50"),
        *("--evaluate-every", "1000", "--evaluation-episodes", "1", "--longest-evaluation", "20"),
        *("--sac.hidden", "4", "4", "--sac.batch-size", "4", "--sac.warm-up-steps", "15"),
    ]


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("EndingItsProcess-v0", [], "aes-rl: the process of the environments of members [0]"),
        ("Exiting-v0", ["--workers", "0"], "aes-rl: the environment of member 0 ended its process in step"),
        ("Failing-v0", ["--workers", "0"], "strange_tasks.py"),
        ("Failing-v0", [], "strange_tasks.py"),
    ],
)
def test_a_run_that_its_environment_ends_fails_with_the_place(task, words, message, tmp_path) -> None:
    result = run_command("train", str(tmp_path / "run"), *options_for(task), *words)
    assert result.returncode == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    "where",
    [
        "--workers 0",
        "--workers 1",
        "--workers 0 --evaluate-every 5 --evaluation-workers 0",
        "--workers 0 --evaluate-every 5 --evaluation-workers 1",
    ],
)
def test_a_second_signal_ends_any_wait(where, tmp_path: Path) -> None:
    """The environment sleeps for an hour in its eleventh step, of a training or a test episode."""
    words = [sys.executable, "-m", "aes_rl", "train", str(tmp_path / "run"), *options_for("Frozen-v0")]
    words += [*where.split(), "--log-every", "1", "--sac.warm-up-steps", "2"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    guard = threading.Timer(120, kill_with_children, [process.pid])
    guard.start()
    metrics, told = tmp_path / "run" / "metrics.csv", ""
    while process.poll() is None and not (metrics.exists() and "\n5," in metrics.read_text()):
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    while "a second signal stops at once" not in told and (line := process.stderr.readline()):
        told += line
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate()
    guard.cancel()
    assert "a second signal stops at once" in told
    assert process.returncode == 130
    assert "Traceback" not in told + rest


def kill_with_children(process: int) -> None:
    parent = psutil.Process(process)
    for own in [*parent.children(recursive=True), parent]:
        own.kill()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory is not a folder here")
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_workers_start_leaves_nothing_in_shared_memory(kind, tmp_path) -> None:
    before = set(os.listdir("/dev/shm"))
    words = [*options_for("Endless-v0"), "--workers", "2", "--seeds", "0", "1", "2", "3"]
    process = subprocess.Popen([sys.executable, "-m", "aes_rl", "train", str(tmp_path / "run"), *words])
    parent = psutil.Process(process.pid)
    while process.poll() is None and not parent.children():
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before its workers started"
    process.send_signal(kind)
    assert process.wait() == -kind
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith(("aes-rl", "pym-"))}
    assert not left
