"""200 steps of every sampler against a recorded trace: a change that cannot change learning leaves these alone.

A change that does is recorded anew with `python -m tests.golden.test_traces` and explained in the changelog.
"""

import json
from pathlib import Path

import pytest
import torch

from aes_rl import (
    Adaptive,
    FullInformation,
    LastValue,
    Naive,
    Predictive,
    Prioritized,
    Replay,
    Signals,
    Transition,
    Uniform,
)
from aes_rl.samplers.geometric import Geometric
from aes_rl.samplers.la3p import LA3P
from aes_rl.samplers.laber import LaBER
from aes_rl.samplers.lap import LAP
from aes_rl.samplers.roer import ROER
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
REPLAYS = {
    "lap": LAP(0.7, smallest_error=0.2),
    "roer": ROER(2.0, rate=0.3),
    "laber": LaBER(candidates=3),
    "la3p": LA3P(0.7, smallest_error=0.2, floor=0.3),
    "predictive, deviation": Predictive(forecast="deviation", memory=50, mean_memory=20, refresh_every=9),
    "predictive, mean and last": Predictive(forecast="mean-and-last", memory=50, mean_memory=20, refresh_every=9),
    "predictive, balanced": Predictive(memory=50, refresh_every=9, networks="balanced"),
    "predictive, separate": Predictive(memory=50, refresh_every=9, networks="separate"),
    "last-value": LastValue(memory=50),
    "geometric": Geometric(mean_age=30, refresh_every=9),
}
"""Samplers of which some choose among candidates or draw for the actor, so that their traces are those of a replay."""


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


def replay_trace(config, backend):
    """Slots and probabilities of every hundredth step, and the rewards of the actor's batch, if it has its own."""
    replay = Replay([config], capacity=100, observation_size=1, action_size=1, seeds=[1], backend=backend)
    steps = []
    for step in range(1, 201):
        value = torch.tensor([(7 * step % 31 + 1) / 8])
        replay.add(Transition(value.unsqueeze(-1), torch.zeros(1, 1), value, torch.zeros(1, 1), torch.zeros(1)))
        sample = replay.sample(4, lambda batch: batch.reward)
        actor = sample.actor.batch if sample.actor else sample.batch
        norms = {"critic": (1 + 9 / step) * sample.batch.reward.square(), "actor": 1 / actor.reward}
        replay.feedback(sample.draw, Signals(sample.batch.reward, norms))
        replay.advance(step)
        if step % 100 == 0:
            steps.append({"slots": sample.draw.slots.tolist(), "probabilities": sample.draw.probabilities.tolist()})
            if sample.actor:
                steps[-1]["actor_rewards"] = sample.actor.batch.reward.tolist()
    return steps


def all_traces(backend):
    """The traces of all samplers, by name."""
    traces = {name: trace(config, backend) for name, config in CONFIGS.items()}
    return traces | {name: replay_trace(config, backend) for name, config in REPLAYS.items()}


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("name", CONFIGS)
def test_trace_is_the_recorded_one(name, backend) -> None:
    recorded = json.loads(TRACES.read_text())[name]
    for expected, found in zip(recorded, trace(CONFIGS[name], backend), strict=True):
        assert found["slots"] == expected["slots"]
        for row, expected_row in zip(found["probabilities"], expected["probabilities"], strict=True):
            assert row == pytest.approx(expected_row, rel=1e-9)


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("name", REPLAYS)
def test_replay_trace_is_the_recorded_one(name, backend) -> None:
    recorded = json.loads(TRACES.read_text())[name]
    for expected, found in zip(recorded, replay_trace(REPLAYS[name], backend), strict=True):
        assert found["slots"] == expected["slots"]
        assert found.get("actor_rewards") == expected.get("actor_rewards")
        for row, expected_row in zip(found["probabilities"], expected["probabilities"], strict=True):
            assert row == pytest.approx(expected_row, rel=1e-5)  # of float32 numbers


if __name__ == "__main__":
    TRACES.write_text(json.dumps(all_traces("numba"), indent=1) + "\n")
