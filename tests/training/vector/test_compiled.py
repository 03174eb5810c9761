"""Catches compiled steps that are not Gymnasium's, and compiled steps of tasks that only resemble Gymnasium's."""

import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from aes_rl.training import PAPER_TASKS
from aes_rl.training.vector import simulator
from aes_rl.training.vector.compiled import libmujoco, loops, verification
from aes_rl.training.vector.environments import Environments
from aes_rl.training.vector.group import Group
from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size
from aes_rl.training.vector.stepper import GymnasiumStepper
from tests.training.vector import changed_tasks
from tests.training.vector.equality import OLD_TASKS, play

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")


@pytest.mark.parametrize("task", [*PAPER_TASKS, *OLD_TASKS])
def test_steps_are_gymnasiums_bit_for_bit(task) -> None:
    """Three members with resets, saved and made anew every 23 steps. `equality` has the long form."""
    outcome = play(task, seed=5, members=3, steps=70, restore_every=23)
    assert not outcome.differences
    if any(name in task for name in ("Hopper", "Walker2d", "Pendulum", "Humanoid", "Reacher")):
        assert outcome.terminated + outcome.truncated > 0


@pytest.mark.parametrize("name", changed_tasks.OPTIONS)
def test_weights_and_ranges_are_read_from_the_environment(name) -> None:
    outcome = play(f"Other{name}-v5", seed=6, members=2, steps=60, restore_every=1000)
    assert not outcome.differences
    assert outcome.terminated + outcome.truncated > 0


def group_of(task: str) -> tuple[Group, StepData]:
    sizes = sizes_of(task)
    data = StepData(np.zeros(step_data_size(1, sizes), np.float32), 1, sizes)
    return Group(task, [0], [3], data), data


@pytest.mark.parametrize("name", ["DoubledReward", "Subclass", "UnusualWeight", "OtherStep"])
def test_a_changed_task_is_stepped_by_gymnasium(name) -> None:
    """One wrapper, a step of its own, a weight of another precision, another version's step."""
    group, data = group_of(f"{name}-v0")
    assert isinstance(group._stepper, GymnasiumStepper)
    plain = gymnasium.make(f"{name}-v0")
    plain.reset(seed=3)
    generator = np.random.default_rng(0)
    for _ in range(20):
        data.action[0] = generator.uniform(-1, 1, 6)
        group.step()
        observation, reward, *_ = plain.step(data.action[0])
        assert np.array_equal(data.next_observation[0], observation.astype(np.float32))
        assert data.reward[0] == np.float32(reward)


@pytest.mark.parametrize(
    "change",
    [
        "sys.modules['numba'] = None",
        "import gymnasium, numba; gymnasium.make('InvertedPendulum-v5').close(); sys.platform = 'darwin'",
        "del mujoco.MjData._address",
        "import psutil; del psutil.Process.memory_maps",
    ],
)
def test_where_the_library_cannot_be_called_gymnasium_steps(change) -> None:
    """No Numba, another platform, a `mujoco` that does not tell addresses, a kernel that does not tell libraries."""
    code = (
        "import sys, mujoco, numpy as np\n"
        "from aes_rl.training.vector.group import Group\n"
        "from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size\n"
        f"{change}\n"
        "sizes = sizes_of('InvertedPendulum-v5')\n"
        "data = StepData(np.ones(step_data_size(1, sizes), np.float32), 1, sizes)\n"
        "group = Group('InvertedPendulum-v5', [0], [3], data)\n"
        "group.step()\n"
        "print(type(group._stepper).__name__, data.next_observation[0].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    group, data = group_of("InvertedPendulum-v5")
    data.action[...] = 1
    group.step()
    assert done.stdout.strip() == f"GymnasiumStepper {data.next_observation[0].tolist()}"


def test_a_library_that_was_deleted_is_rejected(monkeypatch) -> None:
    """Gymnasium steps then, as for every other ImportError."""
    deleted = [SimpleNamespace(path="/nowhere/libmujoco.so.3 (deleted)")]
    monkeypatch.setattr(libmujoco.psutil.Process, "memory_maps", lambda _: deleted)
    with pytest.raises(ImportError, match="cannot be opened again"):
        libmujoco._load()


def test_a_library_without_the_functions_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr(libmujoco, "_FUNCTIONS", ("mj_step", "mj_leap"))
    with pytest.raises(ImportError, match=r"libmujoco\.so\S* has no mj_leap"):
        libmujoco._load()


def test_an_observation_longer_than_its_space_is_an_error() -> None:
    """A model with more joints than the task expects: the loop must not write beyond the observation."""
    assert not verification.is_exact("WrongModel-v0")
    with pytest.raises(RuntimeError, match=r"observation of member 0 is float64 \(6,\); its space says numbers \(4,\)"):
        group_of("WrongModel-v0")


def test_a_difference_in_the_saved_state_alone_is_noticed(monkeypatch) -> None:
    """Most tasks do not read the contact forces that Gymnasium computes; checkpoints hold them."""
    task = verification._compiled_task(simulator.make("Hopper-v5"))
    environments = [simulator.make("Hopper-v5") for _ in range(2)]
    assert verification._agree(*environments, task)
    monkeypatch.setattr(verification.CompiledStepper, "hand_back", lambda *_: None)
    assert not verification._agree(*environments, task)


def step_on(environments: Environments) -> None:
    for _ in range(10_000):
        environments.send(np.ones((2, 1), np.float32))
        environments.receive()


def test_an_error_inside_the_simulator_stops_the_run(tmp_path, monkeypatch, capfd) -> None:
    """Without Python's bindings it ends the process."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log
    group, _ = group_of("Breaking-v0")
    assert not isinstance(group._stepper, GymnasiumStepper)
    environments = Environments("tests.training.vector.changed_tasks:Breaking-v0", [0, 1], 1)
    with pytest.raises(RuntimeError, match=r"members \[0, 1\] .*Breaking-v0\) died \(exit code 1\)"):
        step_on(environments)
    environments.close()
    assert "invalid integrator" in capfd.readouterr().err


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 84, 128])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_are_in_numpys_order(count, kind) -> None:
    generator = np.random.default_rng(count)
    for _ in range(50):
        vector = generator.normal(size=count).astype(kind)
        found = loops.sum_of_squares(vector)
        assert kind(found) == found == np.sum(np.square(vector))


def test_a_fused_dot_product_rounds_once_per_sum() -> None:
    for x, y, z in np.random.default_rng(0).normal(size=(200, 3)):
        total = float(x) * float(x)
        for number in (y, z):
            total = float(Fraction(total) + Fraction(float(number)) ** 2)
        assert loops.dot_with_itself(x, y, z, True) == total
