"""Catches saved simulators that continue differently, workers that differ from one process, and orphaned workers."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import register

from aes_rl.training import PAPER_TASKS
from aes_rl.training.vector import processes, simulator
from aes_rl.training.vector.environments import Environments
from aes_rl.training.vector.group import Resumption


def play(environment, steps, generator):
    seen = []
    for _ in range(steps):
        action = generator.uniform(environment.action_space.low, environment.action_space.high)
        observation, reward, terminated, truncated, _ = environment.step(action)
        seen.append((observation.copy(), reward, terminated, truncated))
        if terminated or truncated:
            seen.append(environment.reset()[0].copy())
    return seen


MAKING = """
import sys, types
from concurrent.futures import ThreadPoolExecutor
import gymnasium, mujoco
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from aes_rl.training.vector import simulator

OLD_MODEL = "<mujoco><compiler settotalmass='3'/></mujoco>"

class Own(HalfCheetahEnv):
    def __init__(self):
        mujoco.MjModel.from_xml_string(OLD_MODEL)
        super().__init__()

class Warning(HalfCheetahEnv):
    def __init__(self):
        super().__init__()
        mujoco.get_mju_user_warning()("the arm is loose")

gymnasium.register("Own-v0", Own)
gymnasium.register("Warning-v0", "gymnasium.envs.mujoco_warning:Warning")  # as if it were one of Gymnasium's
sys.modules["gymnasium.envs.mujoco_warning"] = types.SimpleNamespace(Warning=Warning)

simulator.make("HalfCheetah-v5")
messages = []
mujoco.set_mju_user_warning(messages.append)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(simulator.make, ["HalfCheetah-v5"] * 12))
assert mujoco.get_mju_user_warning() == messages.append and not messages
simulator.make("Own-v0")
print(len(messages))
simulator.make("Warning-v0")
print(messages[-1])
"""


def test_models_of_gymnasium_are_made_without_deprecation_warnings() -> None:
    """One per environment would bury a run's own output. Other warnings, other models and a user's handler are kept."""
    made = subprocess.run([sys.executable, "-c", MAKING], capture_output=True, text=True, check=True)
    assert "deprecated" not in made.stdout + made.stderr
    of_own_task = 2  # of its own old model, and of HalfCheetah's
    assert made.stdout == f"{of_own_task}\nthe arm is loose\n"


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_a_restored_simulator_continues_bit_for_bit(task) -> None:
    original, restored = simulator.make(task), simulator.make(task)
    original.reset(seed=3)
    play(original, 37, np.random.default_rng(0))
    saved = simulator.save(original)
    expected = play(original, 150, np.random.default_rng(1))
    simulator.restore(restored, saved)
    found = play(restored, 150, np.random.default_rng(1))
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, tuple):
            assert np.array_equal(one[0], other[0])
            assert one[1:] == other[1:]
        else:
            assert np.array_equal(one, other)


def test_a_task_without_readable_state_says_so() -> None:
    environment = simulator.make("Pendulum-v1")
    environment.reset(seed=0)
    assert simulator.save(environment) is None


def rollout(environments, steps=60, restore_at=None):
    generator = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        if step == restore_at:
            shown = environments.data.observation.copy()
            saved = environments.save().items()
            environments.restore(
                {member: Resumption(state, shown[member], total, 0) for member, (state, total) in saved}
            )
        environments.send(generator.uniform(-1, 1, environments.data.action.shape).astype(np.float32))
        data = environments.receive()
        rows.append(
            [
                getattr(data, name).copy()
                for name in ("observation", "next_observation", "reward", "terminated", "ended", "episode_return")
            ]
        )
    environments.close()
    return rows


@pytest.mark.parametrize("restore_at", [None, 23])
def test_workers_do_what_one_process_does(restore_at) -> None:
    """InvertedPendulum falls every few steps, so resets and returns are in it."""
    seeds = [5, 6, 7]
    expected = rollout(Environments("InvertedPendulum-v5", seeds, workers=0))
    found = rollout(Environments("InvertedPendulum-v5", seeds, 2), restore_at=restore_at)
    assert any(row[4].any() for row in expected)
    for one, other in zip(expected, found, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_actions_are_scaled_to_the_task() -> None:
    """InvertedPendulum takes actions in [−3, 3]: an agent's 1 must arrive as 3."""
    environments = Environments("InvertedPendulum-v5", [0], workers=0)
    environments.send(np.ones((1, 1), np.float32))
    found = environments.receive().next_observation[0].copy()
    plain = gymnasium.make("InvertedPendulum-v5")
    plain.reset(seed=0)
    expected = plain.step(np.array([3.0], np.float32))[0].astype(np.float32)
    assert np.array_equal(found, expected)


def test_a_time_limit_ends_the_episode_but_not_the_task() -> None:
    environments = Environments("Pendulum-v1", [0], workers=0)
    for step in range(200):
        environments.send(np.zeros((1, 1), np.float32))
        data = environments.receive()
        assert data.terminated[0] == 0
        assert data.ended[0] == (step == 199)


def test_a_dead_worker_raises_with_its_members_and_task() -> None:
    environments = Environments("InvertedPendulum-v5", [0, 1, 2], 2)
    os.kill(environments._workers[1]._process.pid, signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"members \[2\] \(InvertedPendulum-v5\) died \(exit code -9\)"):
        rollout(environments)
    environments.close()


class Exploding(gymnasium.Env):
    """A task that fails after three steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.zeros(2, np.float32), {}

    def step(self, _action):
        self.steps += 1
        if self.steps > 3:
            raise ArithmeticError("the pole broke")
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_an_environment_that_fails_in_a_worker_shows_its_traceback() -> None:
    """The task is named with its module, which the worker imports."""
    task = "tests.training.vector.test_environments:Exploding-v0"
    environments = Environments(task, [0, 1], 1)

    with pytest.raises(RuntimeError, match=r"(?s)members \[0, 1\].*the pole broke"):
        rollout(environments)
    environments.close()


def test_an_environment_that_cannot_start_leaves_nothing_behind() -> None:
    with pytest.raises(RuntimeError, match="there is no pole"):
        Environments("tests.training.vector.test_environments:Unstartable-v0", [0, 1], 2)
    assert not multiprocessing.active_children()


def test_a_process_that_does_not_exit_is_killed_and_waited_for(monkeypatch) -> None:
    """A process that was killed and not waited for is still there for a while."""
    monkeypatch.setattr(processes, "_EXIT_SECONDS", 0.1)
    child = processes.ChildProcess(sleep_long, (), "a sleeper")
    child.close()
    with pytest.raises(ChildProcessError):  # nobody is left to wait for
        os.waitpid(child._process.pid, os.WNOHANG)


def sleep_long(_pipe) -> None:
    time.sleep(3600)


class Unstartable(Exploding):
    """A task that cannot begin."""

    def reset(self, **_):
        raise ArithmeticError("there is no pole")


register("Unstartable-v0", entry_point="tests.training.vector.test_environments:Unstartable")
register("Exploding-v0", entry_point="tests.training.vector.test_environments:Exploding")


def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        "from aes_rl.training.vector.environments import Environments\n"
        "import time\n"
        "if __name__ == '__main__':\n"
        "    made = Environments('InvertedPendulum-v5', [0, 1], 2)\n"
        "    print(*[w._process.pid for w in made._workers], flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    children = [int(word) for word in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(_is_running(child) for child in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.1)


def _is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("HalfCheeta-v5", "unknown task 'HalfCheeta-v5'; did you mean 'HalfCheetah-v5'"),
        ("nowhere:HalfCheetah-v5", "'nowhere:HalfCheetah-v5' cannot be made: No module named 'nowhere'"),
        ("gymnasium:HalfCheetah-v99", "unknown task 'gymnasium:HalfCheetah-v99'; there are .*HalfCheetah-v5"),
        ("HalfCheetah-v99", "unknown task 'HalfCheetah-v99'; there are .*HalfCheetah-v5"),
        ("CartPole-v1", r"task 'CartPole-v1' has the action space Discrete\(2\); DDPG and SAC need a vector"),
    ],
)
def test_unsuitable_tasks(task, message) -> None:
    with pytest.raises(ValueError, match=message):
        simulator.make(task)
