"""Tasks at whose time limit the value of what follows counts in full, as in the code behind published runs.

PYTHONPATH=scripts aes-rl train RUN --task time_limits:Reacher-v4 …

Everywhere else here it is discounted like any other (docs/results/deviations.md says what these tasks are for). With
another discount than the default they are something else.
"""

from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec

TASKS = ("HalfCheetah-v4", "Hopper-v4", "Reacher-v4", "Walker2d-v4")
DISCOUNT = 0.99
"""The default of every agent here."""


class Undiscounted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """At a time limit `terminated` is below 0, by so much that the target r + discount (1 − terminated) V is r + V."""

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
        """Step the task."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        cut_off = truncated and not terminated
        return observation, reward, 1 - 1 / DISCOUNT if cut_off else terminated, truncated, info


for task in TASKS:
    wrapper = WrapperSpec(Undiscounted.__name__, f"{__name__}:{Undiscounted.__name__}", {})
    gymnasium.registry[task] = replace(gymnasium.spec(task), additional_wrappers=(wrapper,))
