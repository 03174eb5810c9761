"""Catches MuJoCo 2.0 tasks with wrong masses, or with constants that do not follow from their masses."""

import importlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import gymnasium
import gymnasium.envs.mujoco as assets
import mujoco
import numpy as np
import pytest

RECORDED_STEPS = Path(__file__).with_name("mujoco210.npz")
"""Steps of MuJoCo 2.1.0, written by reproduction/mujoco210.py."""
DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "dof_M0", "actuator_acc0", "qpos0")

pytestmark = pytest.mark.usefixtures("scripts")
both = pytest.mark.parametrize("task", ["Hopper", "Walker2d"])


def environment_of(task):
    with pytest.warns(DeprecationWarning, match="out of date"):
        return gymnasium.make(task).unwrapped


def model_of(task):
    return environment_of(task).model


def test_masses_are_those_that_mujoco_2_computed() -> None:
    """Torso, thigh, leg and foot of the hopper, as other programs of that time list them."""
    model = model_of("mujoco2:Hopper-v3")
    np.testing.assert_allclose(model.body_mass[1:], [3.53429174, 3.92699082, 2.71433605, 5.0893801], rtol=1e-8)


@both
def test_steps_are_those_of_mujoco_2_1_0(task) -> None:
    """MuJoCo 2.1.0 with Gym's own model files; the current model steps to other states."""
    dynamics, recorded = importlib.import_module("dynamics"), np.load(RECORDED_STEPS)
    before, after = (recorded[f"mujoco2:{task}-v3.{when}"] for when in ("before", "after"))

    def steps(environment):
        return np.array([dynamics.next_state(environment, row) for row in before])

    assert dynamics.difference(steps(environment_of(f"mujoco2:{task}-v3")), after) == "same"
    assert dynamics.difference(steps(environment_of(f"{task}-v4")), after).startswith("100.0%")


@both
def test_masses_and_inertias_are_those_of_cylinders(task) -> None:
    """As MuJoCo computes them for cylinders, which is exact in every version."""
    model = model_of(f"mujoco2:{task}-v3")
    for body in range(1, model.nbody):
        radius, half = model.geom_size[model.geom_bodyid == body][0, :2]
        size = f"{float(radius)!r} {float(half + radius / 2)!r}"
        geom = f'<mujoco><worldbody><body><geom type="cylinder" size="{size}"/></body></worldbody></mujoco>'
        cylinder = mujoco.MjModel.from_xml_string(geom)
        np.testing.assert_allclose(model.body_mass[body], cylinder.body_mass[1], rtol=1e-12)
        np.testing.assert_allclose(model.body_inertia[body], cylinder.body_inertia[1], rtol=1e-12)


@both
def test_the_model_equals_one_compiled_with_these_inertias(task) -> None:
    model = model_of(f"mujoco2:{task}-v3")
    path = Path(assets.__file__).parent / "assets" / f"{task.lower()}.xml"
    tree = ElementTree.parse(path)
    tree.find("compiler").set("inertiafromgeom", "false")
    for number, body in enumerate(tree.find("worldbody").iter("body"), 1):
        given = {"pos": model.body_ipos, "quat": model.body_iquat, "diaginertia": model.body_inertia}
        numbers = {name: " ".join(map(repr, values[number].tolist())) for name, values in given.items()}
        body.insert(0, ElementTree.Element("inertial", {"mass": repr(float(model.body_mass[number])), **numbers}))
    compiled = mujoco.MjModel.from_xml_string(ElementTree.tostring(tree.getroot(), encoding="unicode"))
    assert compiled.body_mass.sum() < 0.97 * model_of(f"{task}-v4").body_mass.sum()
    for name in DERIVED:
        np.testing.assert_allclose(getattr(model, name), getattr(compiled, name), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("gap", "touches"), [(0.0005, True), (0.0015, False)])
def test_contacts_begin_a_millimetre_away(gap, touches) -> None:
    """Between the foot and the floor, each with a margin of one millimetre."""
    environment = environment_of("mujoco2:Hopper-v3")
    mujoco.mj_resetData(environment.model, environment.data)
    environment.data.qpos[1] -= 0.04 - gap  # in the initial pose the foot is four centimetres above the floor
    mujoco.mj_forward(environment.model, environment.data)
    assert (environment.data.ncon > 0) == touches


def test_training_finds_the_tasks_by_name(tmp_path, monkeypatch, scripts) -> None:
    """In worker processes too, which import the module again."""
    monkeypatch.setenv("PYTHONPATH", str(scripts))
    sizes = {"env-steps": 300, "ddpg.warm-up-steps": 200, "workers": 2, "evaluation-workers": 1}
    sizes |= {"evaluate-every": 300, "evaluation-episodes": 1}
    options = ["--task", "mujoco2:Hopper-v3", "--agent", "ddpg", "--samplers", "uniform", "--seeds", "2", "20"]
    options += [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    subprocess.run([sys.executable, "-m", "aes_rl", "train", tmp_path / "run", *options], check=True)
    assert len((tmp_path / "run" / "evaluations.csv").read_text().splitlines()) == 3
