"""Geometric selection: probabilities by age against the formula, exact between two computations of all masses."""

import pytest
import torch

from aes_rl.samplers.geometric import Geometric
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams


def lived(config, backend, insertions, capacity, updates_each=1):
    """A sampler after some insertions with updates after each; the insertion that wrote each slot."""
    sampler = Sampler([config], capacity=capacity, backend=backend)
    streams, written = Streams([3], sampler.backend), {}
    update = 0
    for insertion in range(1, insertions + 1):
        slots = sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
        written[int(torch.as_tensor(slots)[0, 0])] = insertion
        for _ in range(updates_each):
            update += 1
            sampler.advance(update)
    return sampler, [written[slot] for slot in range(len(sampler))]


@pytest.mark.parametrize("overwrite", ["fifo", "uniform"])
@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("insertions", [1, 5, 40, 41, 133])
def test_probabilities_fall_with_age(insertions, backend, overwrite) -> None:
    config = Geometric(mean_age=10, floor=0.1, refresh_every=13, overwrite=overwrite)
    sampler, written = lived(config, backend, insertions, capacity=40)
    shares = torch.tensor([0.9 ** (insertions - one) for one in written], dtype=torch.float64)
    expected = 0.9 * shares / shares.sum() + 0.1 / len(shares)
    assert torch.allclose(sampler.probabilities()[0], expected, rtol=1e-9)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_mean_age_of_draws_is_the_one_asked_for(backend) -> None:
    sampler, written = lived(Geometric(mean_age=50), backend, 2000, capacity=2000)
    ages = 2000 - torch.tensor(written, dtype=torch.float64)
    assert float((sampler.probabilities()[0] * ages).sum()) == pytest.approx(49, rel=1e-6)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_long_waits_and_short_memories_stay_finite(backend) -> None:
    sampler, _ = lived(Geometric(mean_age=1, refresh_every=10**9), backend, 500, capacity=300)
    assert sampler.probabilities().isfinite().all()
    sampler.check()


def test_weights_are_ones_unless_asked() -> None:
    for unbiased in (False, True):
        sampler, _ = lived(Geometric(mean_age=5, unbiased=unbiased, floor=0.2), "numba", 30, capacity=30)
        draw = sampler.draw(Streams([0], sampler.backend).uniform(Stream.DRAW, 0, 64))
        expected = 1 / (30 * draw.probabilities) if unbiased else torch.ones(1, 64, dtype=torch.float64)
        assert torch.allclose(sampler.weights(draw).double(), expected, rtol=1e-6)
