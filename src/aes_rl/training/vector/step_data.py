"""The arrays that the learner and its environments exchange at every step."""

import math
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from aes_rl.training.vector import simulator

if TYPE_CHECKING:
    from torch import Tensor  # environment workers run without torch

Array = TypeVar("Array", NDArray[np.float32], "Tensor")


class Sizes(NamedTuple):
    """Observation and action sizes of a task."""

    observation: int
    action: int


def sizes_of(task: str) -> Sizes:
    """Observation and action sizes of a task."""
    environment = simulator.make(task)
    assert environment.observation_space.shape is not None
    assert environment.action_space.shape is not None
    sizes = Sizes(environment.observation_space.shape[0], environment.action_space.shape[0])
    environment.close()
    return sizes


class StepData(Generic[Array]):
    """Actions, observations and rewards of one step, one row per member."""

    def __init__(self, memory: Array, members: int, sizes: Sizes):
        """Views into `memory`, a flat array or tensor of `step_data_size` float32 numbers."""
        self.memory: Array = memory
        views: dict[str, Array] = {}
        start = 0
        for name, shape in _shapes(members, sizes).items():
            count = math.prod(shape)
            views[name] = memory[start : start + count].reshape(shape)
            start += count
        self.action: Array = views["action"]
        """The next action, in [−1, 1]."""
        self.observation: Array = views["observation"]
        """What the agent observes next, after a reset where an episode ended."""
        self.next_observation: Array = views["next_observation"]
        self.reward: Array = views["reward"]
        self.terminated: Array = views["terminated"]
        """1 where the task terminated."""
        self.ended: Array = views["ended"]
        """1 where the episode ended, by termination or by truncation."""
        self.episode_return: Array = views["episode_return"]
        """Return of the episode that just ended, where one did."""

    def non_finite_value(self) -> str:
        """Describe the first number from an environment that is not finite."""
        for name in ("observation", "next_observation", "reward", "terminated", "episode_return"):
            values = np.asarray(getattr(self, name))
            for member, row in enumerate(values):
                if not np.isfinite(row).all():
                    return f"{name} of member {member} is not finite: {row.tolist()}"
        return "an action is not finite: the policy has diverged,"


def step_data_size(members: int, sizes: Sizes) -> int:
    """How many numbers the data of one step has."""
    return sum(map(math.prod, _shapes(members, sizes).values()))


def _shapes(members: int, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {
        "action": (members, sizes.action),
        "observation": (members, sizes.observation),
        "next_observation": (members, sizes.observation),
        "reward": (members,),
        "terminated": (members,),
        "ended": (members,),
        "episode_return": (members,),
    }
