"""The arrays through which the learner and its environments talk."""

import math
from typing import Any, NamedTuple

import numpy as np

from aes_rl.training import simulator


class Sizes(NamedTuple):
    """What a task looks like to an agent."""

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


class Board:
    """The arrays through which learner and environments talk, one row a member."""

    def __init__(self, memory: Any, members: int, sizes: Sizes):
        """Views of `memory`, an array or a tensor of `board_size` float32 numbers."""
        self.memory = memory
        views, start = {}, 0
        for name, shape in _shapes(members, sizes).items():
            count = math.prod(shape)
            views[name] = memory[start : start + count].reshape(shape)
            start += count
        self.action, self.observation = views["action"], views["observation"]
        """The next action, in [−1, 1]; what the agent sees next, after a reset where an episode ended."""
        self.next_observation, self.reward = views["next_observation"], views["reward"]
        self.terminated, self.ended = views["terminated"], views["ended"]
        """1 where the task ended; 1 where the episode did, by its end or by the time limit."""
        self.episode_return = views["episode_return"]
        """Return of the episode that just ended, where one did."""

    def fault(self) -> str:
        """Which number that an environment gave is not finite."""
        for name in ("observation", "next_observation", "reward", "terminated", "episode_return"):
            values = np.asarray(getattr(self, name))
            for member, own in enumerate(values):
                if not np.isfinite(own).all():
                    return f"{name} of member {member} is not finite: {own.tolist()}"
        return "an action is not finite: the policy has diverged,"


def board_size(members: int, sizes: Sizes) -> int:
    """How many numbers a board holds."""
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
