"""Catches invalid values from environments that go unnoticed, and environments that end their process silently."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aes_rl.agents import SAC
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
        ("Exiting-v0", r"environment of member 0 ended its process in step \(SystemExit\(0\)\)"),
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


def test_a_test_episode_without_an_end_is_cut_off(tmp_path) -> None:
    config = replace(SMALL, task=f"{MODULE}:Endless-v0", workers=0, evaluate_every=20)
    runner = Runner(config, tmp_path / "run")
    list(runner.steps())
    runner.close()
    rows = (tmp_path / "run" / "evaluations.csv").read_text().splitlines()[1:]
    assert [row.split(",")[-1] for row in rows] == ["20.0"] * 3


@pytest.mark.parametrize("task", ["ShortObservation-v0", "TextReward-v0"])
def test_test_episodes_are_checked_too(task, tmp_path) -> None:
    runner = Runner(SMALL, tmp_path / "run")
    made = Evaluator(f"{MODULE}:{task}", 1, 1, 0)
    layers = [(np.zeros((2, 1), np.float32), np.zeros(1, np.float32))]
    with pytest.raises(RuntimeError, match="of member 0 is"):
        made.evaluate(type("Still", (), {"policy": lambda _: [(w[None], b[None]) for w, b in layers]})(), [[0]])
    runner.close()


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


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_second_signal_ends_any_wait(workers, tmp_path: Path) -> None:
    """The environment sleeps for an hour in its eleventh step."""
    words = [sys.executable, "-m", "aes_rl", "train", str(tmp_path / "run"), *options_for("Frozen-v0")]
    process = subprocess.Popen([*words, "--workers", workers, "--log-every", "1"], stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "a second signal stops at once" in told
    assert "Traceback" not in told


def test_a_signal_while_workers_start_leaves_nothing_in_shared_memory(tmp_path) -> None:
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    words = [*options_for("Endless-v0"), "--workers", "2", "--seeds", "0", "1", "2", "3"]
    process = subprocess.Popen([sys.executable, "-m", "aes_rl", "train", str(tmp_path / "run"), *words])
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "lock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith(("aes-rl", "pym-"))}
    assert not left
