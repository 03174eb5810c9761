from dataclasses import replace

import pytest

from aes_rl.study.grid import Study

TINY = Study(
    tasks=("InvertedPendulum-v5",),
    agents=("sac",),
    samplers=("uniform", "adaptive"),
    seeds=(2, 20),
    preset="default",
    env_steps=240,
    members_per_population=2,
    set=(
        "sac.hidden=[8,8]",
        "sac.batch_size=8",
        "sac.warm_up_steps=20",
        "evaluate_every=60",
        "evaluation_episodes=2",
        "checkpoint_every=20",
        "capacity=200",
    ),
)
"""Two groups of two runs."""


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def longer():
    """Three groups, each long enough to be interrupted."""
    return replace(TINY, seeds=(2, 20, 200), env_steps=700)
