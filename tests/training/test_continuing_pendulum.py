"""A task whose state cannot be saved: what is stored after an interruption is still what its environment did."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file

from aes_rl.agents import SAC
from aes_rl.training import Interrupted, Runner, Training
from tests.training.test_runs import finish, stop_at

PENDULUM = Training(
    task="Pendulum-v1",
    samplers=("uniform", "adaptive"),
    env_steps=260,
    capacity=300,
    evaluate_every=130,
    evaluation_episodes=1,
    log_every=50,
    checkpoint_every=70,
    workers=0,
    sac=SAC(hidden=(8, 8), batch_size=8, warm_up_steps=30),
)


def stored(directory: Path) -> np.ndarray:
    """Every transition in the newest checkpoint: members × transitions × (observation, action, next, reward, end)."""
    newest = sorted((directory / "checkpoint").glob("[0-9]*"))[-1]
    rows: np.ndarray = load_file(newest / "tensors.safetensors")["replay.rows"]
    return rows


def impossible(rows: np.ndarray) -> list[str]:
    """Transitions that Pendulum-v1 would not have made; each is made again from what was observed."""
    environment = gymnasium.make("Pendulum-v1").unwrapped
    environment.reset(seed=0)
    found = []
    for member, own in enumerate(rows):
        for number, row in enumerate(own):
            cosine, sine, speed = row[:3]
            environment.state = np.array([np.arctan2(sine, cosine), speed], np.float64)
            observation, reward, *_ = environment.step(2 * row[3:4])
            if not (np.allclose(observation, row[4:7], atol=1e-4) and np.allclose(reward, row[7], atol=1e-3)):
                made = [*observation, reward]
                found.append(
                    f"member {member}, transition {number}: {row[4:8].tolist()}, not {np.round(made, 5).tolist()}"
                )
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_no_transition_joins_two_episodes_where_a_run_was_resumed(workers, tmp_path) -> None:
    config = replace(PENDULUM, workers=workers)
    for step in (20, 90, 150):
        stop_at(step, config, tmp_path)
    finish(config, tmp_path)
    rows = stored(tmp_path)
    assert rows.shape[:2] == (2, 260)
    assert impossible(rows) == []


def test_no_transition_joins_two_episodes_where_a_signal_stopped_a_run(tmp_path) -> None:
    runner = Runner(PENDULUM, tmp_path)
    steps = runner.steps()
    while next(steps).env_step < 110:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        next(steps)
    runner.close()
    finish(PENDULUM, tmp_path)
    assert impossible(stored(tmp_path)) == []


def test_an_impossible_transition_is_found(tmp_path) -> None:
    """Or the tests above would say nothing."""
    stop_at(40, PENDULUM, tmp_path)
    rows = stored(tmp_path)
    rows[1, 7, 4:7] = rows[1, 9, 4:7]
    (found,) = impossible(rows)
    assert found.startswith("member 1, transition 7")
