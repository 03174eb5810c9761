"""MuJoCo tasks with options of their own, and tasks that look like MuJoCo's and are not."""

import itertools

import gymnasium
import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.registration import register
from gymnasium.wrappers import TransformReward

OPTIONS = {
    "HalfCheetah": {
        "forward_reward_weight": 0.3,
        "ctrl_cost_weight": 0.7,
        "exclude_current_positions_from_observation": False,
        "frame_skip": 2,
    },
    "Hopper": {
        "forward_reward_weight": 0.3,
        "ctrl_cost_weight": 0.7,
        "healthy_reward": 3,
        "healthy_z_range": (1.1, 1.3),
        "healthy_angle_range": (-0.05, 0.1),
        "healthy_state_range": (-1.0, 2.0),
        "exclude_current_positions_from_observation": False,
    },
    "Walker2d": {
        "forward_reward_weight": 0.3,
        "ctrl_cost_weight": 0.7,
        "healthy_reward": 3,
        "healthy_z_range": (1.1, 1.3),
        "healthy_angle_range": (-0.05, 0.1),
        "terminate_when_unhealthy": False,
        "exclude_current_positions_from_observation": False,
    },
    "Ant": {
        "forward_reward_weight": 0.3,
        "ctrl_cost_weight": 0.7,
        "contact_cost_weight": 0.2,
        "healthy_reward": 3,
        "main_body": "front_left_leg",
        "terminate_when_unhealthy": False,
        "healthy_z_range": (0.5, 0.8),
        "contact_force_range": (-0.1, 0.2),
        "include_cfrc_ext_in_observation": False,
        "exclude_current_positions_from_observation": False,
    },
    "Humanoid": {
        "forward_reward_weight": 0.3,
        "ctrl_cost_weight": 0.7,
        "contact_cost_weight": 0.2,
        "contact_cost_range": (0.1, 0.2),
        "healthy_reward": 3,
        "terminate_when_unhealthy": False,
        "healthy_z_range": (1.2, 1.3),
        "include_cinert_in_observation": False,
        "include_qfrc_actuator_in_observation": False,
        "exclude_current_positions_from_observation": False,
    },
    "InvertedPendulum": {"frame_skip": 3},
    "InvertedDoublePendulum": {"healthy_reward": 7.0},
    "Reacher": {"reward_dist_weight": 0.3, "reward_control_weight": 0.7},
}
"""Options that differ from the defaults, by name of the task; registered as `Other<name>-v5`."""


def doubled_reward() -> gymnasium.Env:
    """HalfCheetah with one wrapper."""
    return TransformReward(HalfCheetahEnv(), lambda reward: 2 * reward)


class Subclass(HalfCheetahEnv):
    """HalfCheetah with a step of its own."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1.0, *rest


class UnusualWeight(HalfCheetahEnv):
    """Its weight makes costs float64. By its name and module it is Gymnasium's own class."""

    def __init__(self):
        super().__init__(ctrl_cost_weight=np.float64(0.1))


UnusualWeight.__name__, UnusualWeight.__module__ = HalfCheetahEnv.__name__, HalfCheetahEnv.__module__


class OtherStep(HalfCheetahEnv):
    """What another version of Gymnasium might do. By its name and module it is Gymnasium's own class."""

    def control_cost(self, action):
        return 0.5 * super().control_cost(action)


OtherStep.__name__, OtherStep.__module__ = HalfCheetahEnv.__name__, HalfCheetahEnv.__module__


def breaking() -> gymnasium.Env:
    """InvertedPendulum whose simulator fails in the first step after many resets."""
    environment, resets = InvertedPendulumEnv(), itertools.count()
    reset_model = environment.reset_model

    def reset_and_break():
        if next(resets) == 60:
            environment.model.opt.integrator = 99
        return reset_model()

    environment.reset_model = reset_and_break
    return environment


for name, options in OPTIONS.items():
    spec = gymnasium.spec(f"{name}-v5")
    register(f"Other{name}-v5", entry_point=spec.entry_point, kwargs=options, max_episode_steps=20)
for name, entry_point in {
    "DoubledReward": doubled_reward,
    "Subclass": Subclass,
    "UnusualWeight": UnusualWeight,
    "OtherStep": OtherStep,
    "Breaking": breaking,
}.items():
    register(f"{name}-v0", entry_point=entry_point, max_episode_steps=50)
register(
    "WrongModel-v0",
    entry_point="gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv",
    kwargs={"xml_file": "inverted_double_pendulum.xml"},
)
