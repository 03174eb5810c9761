"""Environments with faults."""

import os
import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import register


class Strange(gymnasium.Env[Any, Any]):
    """Returns zeros, and after ten steps what its subclass returns instead."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    instead: ClassVar[dict[str, Any]] = {}
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, _action):
        self.steps += 1
        given = {"observation": np.zeros(2, np.float32), "reward": 0.0, "terminated": False, "truncated": False}
        if self.steps > 10:
            given |= self.instead
            self.misbehave()
        return given["observation"], given["reward"], given["terminated"], given["truncated"], {}

    def misbehave(self) -> None:
        """By default the fault is only in the returned values."""


class ShortObservation(Strange):
    instead: ClassVar = {"observation": np.zeros(1, np.float32)}


class TextObservation(Strange):
    instead: ClassVar = {"observation": np.array(["1", "2"])}


class TextReward(Strange):
    instead: ClassVar = {"reward": "1.0"}


class TextEnd(Strange):
    instead: ClassVar = {"terminated": "False"}


class TextTruncation(Strange):
    instead: ClassVar = {"truncated": "False"}


class InfiniteReward(Strange):
    instead: ClassVar = {"reward": np.inf}


class InfiniteObservation(Strange):
    instead: ClassVar = {"observation": np.array([0, np.inf], np.float32)}


class HugeReward(Strange):
    instead: ClassVar = {"reward": 1e30}


class Exiting(Strange):
    def misbehave(self) -> None:
        sys.exit(0)


class ExitingInReset(Strange):
    instead: ClassVar = {"terminated": True}

    def reset(self, *, seed=None, options=None):
        if self.steps:
            sys.exit(0)
        return super().reset(seed=seed, options=options)


class ExitingAtOnce(Strange):
    def __init__(self):
        sys.exit(0)


class EndingItsProcess(Strange):
    def misbehave(self) -> None:
        os._exit(0)


class Failing(Strange):
    def misbehave(self) -> None:
        raise ValueError("boom in step")


class Frozen(Strange):
    def misbehave(self) -> None:
        time.sleep(3600)


for task in Strange.__subclasses__():
    register(f"{task.__name__}-v0", entry_point=f"{__name__}:{task.__name__}")
register("Endless-v0", entry_point=f"{__name__}:Strange")
register("EndlessPendulum-v0", entry_point="gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv")
