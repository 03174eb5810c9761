"""Hopper-v3 and Walker2d-v3 with the masses and contacts of MuJoCo 2.0, with which published curves were made.

PYTHONPATH=scripts aes-rl train RUN --task mujoco2:Hopper-v3 …

The models of v3 and v4 are the same, and two things are known to have changed in MuJoCo since
(docs/decisions/mujoco.md). Up to 2.1.0 a capsule had the mass and inertia of a cylinder that reaches half a radius
beyond its middle section on both sides, which is lighter. Up to 3.4 contacts began at the larger margin of two geoms,
and begin at their sum today.
"""

from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco.hopper_v4 import HopperEnv
from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv

DENSITY = 1000.0
"""Of every geom, in kg/m³."""
MARGINS_ADD_UP_SINCE = (3, 5)
"""The version of MuJoCo."""


class Hopper(HopperEnv):
    """A hopper of 15.3 kg; today's weighs 15.8."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        as_in_mujoco_2(self.model, self.data)


class Walker2d(Walker2dEnv):
    """A walker of 22.7 kg; today's weighs 23.7."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        as_in_mujoco_2(self.model, self.data)


def as_in_mujoco_2(model: Any, data: Any) -> None:
    """Change masses, inertias and margins of a model whose bodies are a capsule each."""
    for body in range(1, model.nbody):
        (geom,) = np.flatnonzero(model.geom_bodyid == body)
        assert model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE
        radius, half = model.geom_size[geom, :2]
        assert np.allclose(model.body_mass[body], DENSITY * np.pi * radius**2 * (2 * half + 4 / 3 * radius))
        length = 2 * half + radius
        mass = DENSITY * np.pi * radius**2 * length
        across = mass * (3 * radius**2 + length**2) / 12
        # Principal axes are those of the capsule, which lies along the third.
        model.body_mass[body], model.body_inertia[body] = mass, (across, across, mass * radius**2 / 2)
    if tuple(map(int, mujoco.__version__.split(".")[:2])) >= MARGINS_ADD_UP_SINCE:
        model.geom_margin[:] /= 2
    mujoco.mj_setConst(model, data)  # all but model.stat, which scales the solver's tolerance


for environment in (Hopper, Walker2d):
    task = f"{environment.__name__}-v3"
    gymnasium.registry.pop(task, None)  # Gymnasium keeps the name to say that it has no such task any more
    gymnasium.register(task, f"{__name__}:{environment.__name__}", max_episode_steps=1000)
