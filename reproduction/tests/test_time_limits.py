"""Catches tasks that discount at time limits although they should not, or fail to discount elsewhere."""

import numpy as np
import pytest

from aes_rl.agents import DDPG, SAC
from aes_rl.training.vector.environments import Environments

pytestmark = [pytest.mark.usefixtures("scripts"), pytest.mark.filterwarnings("ignore:.*out of date")]


def test_the_value_after_a_time_limit_is_not_discounted() -> None:
    """Reacher's limit is 50 steps. There r + discount (1 − terminated) V, the target at every step, must be r + V."""
    environments = Environments("time_limits:Reacher-v4", [1, 2], workers=0)
    counted, ended = [], []
    for _ in range(101):
        environments.send(np.zeros(environments.data.action.shape, np.float32))
        data = environments.receive()
        counted.append(SAC().discount * (1 - data.terminated))
        ended.append(data.ended.copy())
    environments.close()
    expected = np.full((101, 2), SAC().discount)
    expected[[49, 99]] = 1
    np.testing.assert_allclose(counted, expected, rtol=1e-6)
    np.testing.assert_array_equal(ended, expected == 1)
    assert DDPG().discount == SAC().discount


def test_termination_still_ends_the_episode() -> None:
    """Without actions the hopper falls long before its time limit."""
    environments = Environments("time_limits:Hopper-v4", [1], workers=0)
    for _ in range(1000):
        environments.send(np.zeros(environments.data.action.shape, np.float32))
        data = environments.receive()
        if data.ended[0]:
            break
    environments.close()
    assert data.terminated[0] == 1
