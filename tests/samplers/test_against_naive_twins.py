"""The fast samplers driven beside the obvious ones through the same random history."""

import numpy as np
import pytest
import torch

from aes_rl import Adaptive, LastValue, Predictive, Prioritized, Sampler, Signals, backends
from aes_rl.streams import Stream, Streams
from aes_rl.types import as_tensor
from tests.reference.naive_sampler import (
    NaiveAdaptive,
    NaiveDeviation,
    NaiveLastValue,
    NaivePredictive,
    NaivePrioritized,
)

TWINS = {
    "adaptive": (Adaptive(0.2, 50.0, 0.7, forget_every=5), lambda n: NaiveAdaptive(n, 0.2, 50.0, 0.7, 5)),
    "hard": (Adaptive(0.1, 1.0, 0.0, forget_every=9), lambda n: NaiveAdaptive(n, 0.1, 1.0, 0.0, 9)),
    "last value": (LastValue(0.2, memory=10), lambda n: NaiveLastValue(n, 0.2, 10)),
    "predictive": (Predictive(0.1, memory=30, refresh_every=5), lambda n: NaivePredictive(n, 0.1, 30, 5)),
    "predictive, deviation": (
        Predictive(0.1, forecast="deviation", memory=30, mean_memory=8, refresh_every=15),
        lambda n: NaiveDeviation(n, 0.1, 30, 8, 15),
    ),
    "predictive, mean and last": (
        Predictive(0.1, forecast="mean-and-last", memory=30, mean_memory=8, refresh_every=15),
        lambda n: NaiveDeviation(n, 0.1, 30, 8, 15, uses_last=True),
    ),
    "prioritized": (Prioritized(), lambda n: NaivePrioritized(n, 0.6, 1e-6)),
}


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("capacity", [1, 2, 17, 150])
@pytest.mark.parametrize("kind", TWINS)
def test_same_history_same_state(kind, capacity, backend) -> None:
    config, make_twin = TWINS[kind]
    sampler, twin = Sampler([config], capacity=capacity, total_updates=1000, backend=backend), make_twin(capacity)
    streams = Streams([11], sampler.backend)
    generator = np.random.default_rng(0)
    counter = backends.choose(backend, "cpu").counter()
    held_back = None
    for update_step in range(1, 400):
        uniforms = streams.uniform(Stream.PLACE, sampler.distribution.clock, 2)
        slots = sampler.place(uniforms)
        assert int(slots[0, 0]) == twin.insert(float(uniforms[0, 0]), float(uniforms[0, 1]))
        uniforms = streams.uniform(Stream.DRAW, counter, 6)
        counter += 1
        draw = sampler.draw(uniforms)
        assert draw.slots[0].tolist() == [twin.slot_at(float(u)) for u in as_tensor(uniforms)[0]]
        expected = twin.probabilities()
        np.testing.assert_allclose(sampler.probabilities()[0].numpy(), expected, rtol=1e-9)
        np.testing.assert_allclose(draw.probabilities[0].numpy(), expected[draw.slots[0].numpy()], rtol=1e-9)
        signal = torch.from_numpy(np.exp(generator.normal(0, 3, (1, 6))))
        # Every third report is held back for a step, so that some of its slots have been overwritten.
        reports = [] if held_back is None else [held_back]
        held_back = (draw, signal) if update_step % 3 == 0 else None
        if held_back is None:
            reports.insert(0, (draw, signal))
        for reported, values in reports:
            sampler.feedback(reported, Signals(td_error=values, gradient_norm={"critic": values}))
            twin.report(
                reported.slots[0].tolist(), reported.probabilities[0].tolist(), values[0].tolist(), int(reported.clock)
            )
        sampler.advance(update_step)
        twin.advance(update_step)
