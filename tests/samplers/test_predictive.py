"""Predictive selection (S15): by hand on a few slots, and on norms whose drift is known."""

import math

import pytest
import torch

from aes_rl import Adaptive, Predictive, Sampler, Signals
from aes_rl.lab.simulate import Drifting, captured_over_time
from aes_rl.samplers import deviation_equations, deviation_loops
from aes_rl.streams import Stream, Streams
from aes_rl.types import Draw

ENGINES = ["numba", "torch"]


def filled(config, slots, backend):
    sampler = Sampler([config], capacity=slots, backend=backend)
    streams = Streams([0], sampler.backend)
    for _ in range(slots):
        sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
    return sampler


def report(sampler, slots, norms):
    model = sampler.draw(Streams([0], sampler.backend).uniform(Stream.DRAW, sampler.backend.counter(), 1))
    slots = torch.tensor([slots])
    probabilities = torch.full(slots.shape, 1 / sampler.capacity, dtype=torch.float64)
    views = (slots, probabilities) if sampler.backend.name == "torch" else (slots.numpy(), probabilities.numpy())
    sampler.feedback(Draw(*views, model.size, model.clock), Signals(gradient_norm={"critic": torch.tensor([norms])}))


@pytest.mark.parametrize("backend", ENGINES)
def test_two_reports_by_hand(backend) -> None:
    """Log norms 0 and 2 with weight 1 each: mean 1, variance 1. One report shows no slope: all masses are alike.

    After the same report again, at age 1: two pairs with old · new = old · old = 1, so a slope of 2/(2 + 16).
    """
    sampler = filled(Predictive(refresh_every=2), 4, backend)
    report(sampler, [0, 1], [1.0, math.exp(2)])
    masses = sampler.distribution.tree.masses[0].tolist()
    assert masses == pytest.approx([math.exp(0.75), math.exp(0.75), 1.0, 1.0])  # the others were written before that
    report(sampler, [0, 1], [1.0, math.exp(2)])
    masses = sampler.distribution.tree.masses[0].tolist()
    slope = 1 / 9
    for slot, residual in ((0, -1), (1, 1)):
        expected = 1 + slope * residual + 0.5 * (1 - slope**2)
        assert masses[slot] == pytest.approx(math.exp(0.5 * expected), rel=1e-6)


@pytest.mark.parametrize("backend", ENGINES)
def test_unseen_slots_have_the_mean_norm(backend) -> None:
    sampler = filled(Predictive(refresh_every=1), 4, backend)
    report(sampler, [0, 1], [1.0, math.exp(2)])
    sampler.advance(1)
    assert sampler.distribution.tree.masses[0, 2:].tolist() == pytest.approx([math.exp(0.5 * 1.5)] * 2)


@pytest.mark.parametrize("backend", ENGINES)
def test_steady_norms_get_a_slope_of_one_and_the_oracles_masses(backend) -> None:
    sampler = filled(Predictive(refresh_every=1), 4, backend)
    norms = [1.0, 4.0, 100.0, 0.01]
    for step in range(1, 400):
        report(sampler, [0, 1, 2, 3], norms)
        sampler.advance(step)
    masses = sampler.distribution.tree.masses[0]
    assert (masses / masses[0]).tolist() == pytest.approx([math.sqrt(norm) for norm in norms], rel=0.05)


@pytest.mark.parametrize("backend", ENGINES)
def test_scale_does_not_matter(backend) -> None:
    """Multiplying all norms leaves the probabilities as they are: there is no ν to tune."""
    probabilities = []
    for scale in (1e-6, 1.0, 1e6):
        sampler = filled(Predictive(refresh_every=1), 5, backend)
        for step in range(1, 20):
            report(sampler, [step % 5, (3 * step + 1) % 5], [scale * (1 + step % 5), scale * 7.0])
            sampler.advance(step)
        probabilities.append(sampler.probabilities())
    for other in probabilities[1:]:
        torch.testing.assert_close(other, probabilities[0], rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("share", "time_constant", "least"), [(1.0, 1.0, 0.95), (0.7, 600.0, 0.75), (0.3, 600.0, 0.4), (0.0, 1.0, -0.02)]
)
def test_captures_what_lasts_and_never_loses_to_uniform(share, time_constant, least) -> None:
    """8,000 slots drawn 32 at a time: one in 250 updates, where AES is worse than uniform."""
    problem = Drifting(8000, 0.4, share, time_constant)
    predictive = captured_over_time(Predictive(), problem, 32, 3000)
    assert predictive[-1] > least
    assert min(predictive[1:]) > least - 0.1  # while the floor falls
    assert min(predictive) > -0.05
    assert captured_over_time(Adaptive(), problem, 32, 3000)[-1] < predictive[-1]


@pytest.mark.parametrize(
    ("variances", "covariances", "expected"),
    [
        ((1.0, 1.0, 0.0), (0.3, 0.4), (0.3, 0.4)),
        ((2.0, 1.0, 0.5), (1.0, 0.6), (0.7 / 1.75, 0.7 / 1.75)),
        ((1.0, 1.0, 0.8), (0.3, 0.6), (0.0, 0.6)),  # the running mean's slope alone would be −0.5
        ((1.0, 2.0, 0.9), (0.6, 0.3), (0.6, 0.0)),
        ((1.0, 1.0, 0.0), (1.7, 0.4), (1.0, 0.4)),
        ((1.0, 1.0, 0.0), (0.3, 2.5), (0.3, 1.0)),
        ((1.0, 1.0, 0.9), (1.0, 3.0), (0.0, 1.0)),
        ((1.0, 1.0, 0.0), (-0.2, -0.1), (0.0, 0.0)),
        ((1.0, 1.0, 1.0), (0.5, 0.5), (0.0, 0.0)),  # one and the same number: no joint fit, and no division by zero
    ],
)
def test_slopes_of_running_mean_and_last_deviation(variances, covariances, expected) -> None:
    """A negative slope is dropped and the other one fitted alone; both are at most 1."""
    numbers = (*variances, *covariances)
    assert deviation_loops._two_slopes(*numbers) == pytest.approx(expected)
    slopes = deviation_equations._two_slopes(*(torch.tensor([number], dtype=torch.float64) for number in numbers))
    assert [float(slope) for slope in slopes] == pytest.approx(expected)
