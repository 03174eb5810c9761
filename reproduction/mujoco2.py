"""Hopper-v3 and Walker2d-v3 with the masses and contacts of MuJoCo 2.0, which the published runs used.

PYTHONPATH=reproduction aes-rl train RUN --task mujoco2:Hopper-v3 …

The model files of v3 and v4 are the same. Two things have changed in MuJoCo since 2.0 (docs/decisions/mujoco.md). Up to
2.1.0 a capsule had the mass and inertia of a cylinder that extends half a radius beyond the capsule's middle section on
both sides, which is lighter. Up to 3.4 a contact was active within the larger of the two geoms' margins; since 3.5,
within their sum.
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
"""First MuJoCo version that adds the margins of two geoms."""


class Hopper(HopperEnv):
    """A hopper of 15.3 kg; the current model weighs 15.8 kg."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        restore_mujoco_2(self.model, self.data)


class Walker2d(Walker2dEnv):
    """A walker of 22.7 kg; the current model weighs 23.7 kg."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        restore_mujoco_2(self.model, self.data)


def restore_mujoco_2(model: Any, data: Any) -> None:
    """Set the masses, inertias and margins of a model in which every body is one capsule."""
    for body in range(1, model.nbody):
        (geom,) = np.flatnonzero(model.geom_bodyid == body)
        assert model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE
        radius, half = model.geom_size[geom, :2]
        assert np.allclose(model.body_mass[body], DENSITY * np.pi * radius**2 * (2 * half + 4 / 3 * radius))
        length = 2 * half + radius
        mass = DENSITY * np.pi * radius**2 * length
        across = mass * (3 * radius**2 + length**2) / 12
        # The principal axes are those of the capsule, whose length is along the third.
        model.body_mass[body], model.body_inertia[body] = mass, (across, across, mass * radius**2 / 2)
    if tuple(map(int, mujoco.__version__.split(".")[:2])) >= MARGINS_ADD_UP_SINCE:
        model.geom_margin[:] /= 2
    mujoco.mj_setConst(model, data)  # updates everything except model.stat, which scales the solver's tolerance


for environment in (Hopper, Walker2d):
    task = f"{environment.__name__}-v3"
    gymnasium.registry.pop(task, None)  # Gymnasium registers the name only to report that the task was removed
    gymnasium.register(task, f"{__name__}:{environment.__name__}", max_episode_steps=1000)
