"""Where the weights and the feedback of a batch end in Tianshou: with the update that it was drawn for."""

import pytest
import torch
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.data import ReplayBuffer

from aes_rl import Adaptive
from aes_rl.integrations.tianshou import SelectiveReplayBuffer, attach
from tests.integrations.test_tianshou import filled, make, trained, update


@pytest.mark.parametrize("kind", ["SAC", "TD3"])
def test_an_update_from_another_buffer_is_not_weighted(kind) -> None:
    """The last batch of the selective buffer ends with its update, that of a delayed actor included."""
    found = []
    for is_attached in (True, False):
        algorithm = make(kind)
        if kind == "TD3":
            algorithm.update_actor_freq = 2
        buffer = filled(SelectiveReplayBuffer(100, sampler=Adaptive(nu=1.0, floor=0.1)))
        attachment = attach(algorithm, buffer)
        for _ in range(31):
            update(algorithm, buffer)
        reported = buffer.selection.updates
        if not is_attached:
            attachment.detach()
        torch.manual_seed(1)
        update(algorithm, filled(ReplayBuffer(100), seed=5))
        assert buffer.selection.updates == reported == 31
        found.append([parameter.grad.clone() for parameter in algorithm.parameters() if parameter.grad is not None])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_update_with_the_whole_buffer_is_not_weighted() -> None:
    algorithm, buffer, _ = trained("SAC", "adaptive", updates=3)
    with policy_within_training_step(algorithm.policy):
        algorithm.update(sample_size=0, buffer=buffer)
