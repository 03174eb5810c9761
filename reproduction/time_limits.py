"""Tasks whose time limit does not discount the next state's value, as in the code of the published runs.

PYTHONPATH=reproduction aes-rl train RUN --task time_limits:Reacher-v4 …

All other tasks here discount it as at any other step; docs/results/deviations.md says what these are for. They are
correct for the default discount only.
"""

from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec

TASKS = ("HalfCheetah-v4", "Hopper-v4", "Reacher-v4", "Walker2d-v4")
DISCOUNT = 0.99
"""The default of both agents."""


class Undiscounted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sets `terminated` to 1 − 1/discount at a time limit: the target r + discount (1 − terminated) V is then r + V."""

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
        """Step the task."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        is_time_limit = truncated and not terminated
        return observation, reward, 1 - 1 / DISCOUNT if is_time_limit else terminated, truncated, info


for task in TASKS:
    wrapper = WrapperSpec(Undiscounted.__name__, f"{__name__}:{Undiscounted.__name__}", {})
    gymnasium.registry[task] = replace(gymnasium.spec(task), additional_wrappers=(wrapper,))
