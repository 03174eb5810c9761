"""200 steps of every sampler against a recorded trace: a change that cannot change learning leaves these alone.

A change that does is recorded anew with `python -m tests.golden.test_traces` and explained in the changelog.
"""

import json
from pathlib import Path

import pytest

from aes_rl import Adaptive, FullInformation, Naive, Predictive, Prioritized, Uniform
from aes_rl.testing import Case, Life

TRACES = Path(__file__).parent / "traces.json"
CONFIGS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(),
    "adaptive": Adaptive(forget_every=9),
    "adaptive, annealed": Adaptive(floor=0.1, nu=50.0, retention=0.8, retention_end=0.2, forget_every=7),
    "predictive": Predictive(memory=50, refresh_every=9),
    "naive": Naive(updates_per_epoch=20),
    "full-information": FullInformation(),
}


def trace(config, backend):
    """Slots and probabilities of every twentieth step of a life that overwrites after step 100."""
    life = Life(Case(config, members=2, capacity=100, backend=backend))
    steps = []
    for step in range(1, 201):
        life.insert()
        draw = life.update(4)
        if step % 20 == 0:
            steps.append({"slots": draw.slots.tolist(), "probabilities": draw.probabilities.tolist()})
    return steps


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("name", CONFIGS)
def test_trace_is_the_recorded_one(name, backend) -> None:
    recorded = json.loads(TRACES.read_text())[name]
    for expected, found in zip(recorded, trace(CONFIGS[name], backend), strict=True):
        assert found["slots"] == expected["slots"]
        for row, expected_row in zip(found["probabilities"], expected["probabilities"], strict=True):
            assert row == pytest.approx(expected_row, rel=1e-9)


if __name__ == "__main__":
    TRACES.write_text(json.dumps({name: trace(config, "numba") for name, config in CONFIGS.items()}, indent=1) + "\n")
