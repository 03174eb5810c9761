"""Regularized optimal experience replay against its recursion, slot by slot in plain Python."""

import math

import pytest
import torch

from aes_rl import Sampler, Signals
from aes_rl.errors import UserError
from aes_rl.samplers.roer import ROER

SLOTS, BATCH = 12, 5
CONFIG = ROER(temperature=2.0, rate=0.2, largest_ratio=20.0, smallest_priority=0.7)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_probabilities_follow_the_recursion(backend) -> None:
    """Errors beyond the limit, repeated slots, and slots overwritten between draw and report."""
    sampler = Sampler([CONFIG], capacity=SLOTS, backend=backend)
    generator = torch.Generator().manual_seed(0)

    def uniforms(count):
        return sampler.backend.view(torch.rand(1, count, generator=generator, dtype=torch.float64))

    masses, late, repeated = {}, 0, 0
    for number in range(60):
        for slot in torch.as_tensor(sampler.place(uniforms(2)))[0].tolist():
            masses[slot] = 0.7
        total = sum(masses.values())
        draw = sampler.draw(uniforms(BATCH))
        slots = draw.slots[0].tolist()
        chances = [masses[slot] / total for slot in slots]
        live, overwritten = len(masses), []
        if number % 3 == 0:
            overwritten = torch.as_tensor(sampler.place(uniforms(2)))[0].tolist()
            masses.update(dict.fromkeys(overwritten, 0.7))
        errors = (16 * torch.rand(1, BATCH, generator=generator) - 8).double()
        sampler.feedback(draw, Signals(td_error=errors))
        current = [
            (slot, min(math.exp(abs(error) / 2.0), 20.0), chance)
            for slot, error, chance in zip(slots, errors[0].tolist(), chances, strict=True)
            if slot not in overwritten
        ]
        late += len(current) < BATCH
        repeated += len({slot for slot, _, _ in current}) < len(current)
        terms = [masses[slot] * ratio / (live * chance) for slot, ratio, chance in current]
        moved = {
            slot: max((0.2 * ratio / (sum(terms) / len(terms)) + 0.8) * masses[slot], 0.7) for slot, ratio, _ in current
        }
        masses.update(moved)
        expected = torch.tensor([masses[slot] for slot in range(len(sampler))], dtype=torch.float64)
        assert torch.allclose(sampler.probabilities()[0], expected / expected.sum(), rtol=1e-9)
    assert late, "nothing was overwritten"
    assert repeated, "no slot was repeated"


def test_huge_errors_stay_finite() -> None:
    sampler = Sampler([CONFIG], capacity=4)
    uniforms = sampler.backend.view(torch.tensor([[0.1, 0.4, 0.6, 0.9]], dtype=torch.float64))
    sampler.place(uniforms)
    for _ in range(1000):
        sampler.feedback(sampler.draw(uniforms), Signals(td_error=torch.tensor([[0.0, 1e30, 3.0, 1.0]])))
    assert sampler.probabilities().isfinite().all()
    assert float(sampler.distribution.tree.masses.max()) < 1e6


def test_a_ratio_that_is_no_number_is_rejected() -> None:
    with pytest.raises(UserError, match="largest_ratio is '50'; it must be a finite number"):
        ROER(largest_ratio="50")


def test_a_ratio_of_one_is_rejected() -> None:
    with pytest.raises(UserError, match="largest_ratio is 1; it must be finite and above 1"):
        ROER(largest_ratio=1)
