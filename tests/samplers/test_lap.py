"""Loss-adjusted prioritized replay against its formula, slot by slot in plain Python."""

import pytest
import torch

from aes_rl import Sampler, Signals
from aes_rl.samplers.lap import LAP

SLOTS, BATCH = 12, 5


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_probabilities_follow_the_last_errors(backend) -> None:
    """Errors on both sides of the limit, repeated slots, and slots overwritten between draw and report."""
    config = LAP(priority_exponent=0.7, smallest_error=2.0)
    sampler = Sampler([config], capacity=SLOTS, backend=backend)
    generator = torch.Generator().manual_seed(0)

    def uniforms(count):
        return sampler.backend.view(torch.rand(1, count, generator=generator, dtype=torch.float64))

    masses, largest, late = {}, 1.0, 0
    for number in range(60):
        for slot in torch.as_tensor(sampler.place(uniforms(4)))[0].tolist():
            masses[slot] = largest
        draw = sampler.draw(uniforms(BATCH))
        overwritten = []
        if number % 3 == 0:
            overwritten = torch.as_tensor(sampler.place(uniforms(4)))[0].tolist()
            masses.update(dict.fromkeys(overwritten, largest))
        errors = 6 * torch.rand(1, BATCH, generator=generator) - 3
        sampler.feedback(draw, Signals(td_error=errors))
        for slot, error in zip(draw.slots[0].tolist(), errors[0].tolist(), strict=True):
            if slot in overwritten:
                late += 1
                continue
            masses[slot] = max(abs(error), 2.0) ** 0.7
            largest = max(largest, masses[slot])
        expected = torch.tensor([masses[slot] for slot in range(len(sampler))], dtype=torch.float64)
        assert torch.allclose(sampler.probabilities()[0], expected / expected.sum(), rtol=1e-6)
    assert late, "nothing was overwritten"


@pytest.mark.parametrize("unbiased", [False, True])
def test_weights_are_ones_unless_asked(unbiased) -> None:
    sampler = Sampler([LAP(unbiased=unbiased)], capacity=SLOTS)
    sampler.place(sampler.backend.view(torch.rand(1, 8, dtype=torch.float64)))
    uniforms = sampler.backend.view(torch.tensor([[0.1, 0.4, 0.6, 0.9]], dtype=torch.float64))
    sampler.feedback(sampler.draw(uniforms), Signals(td_error=torch.tensor([[0.5, 3.0, 9.0, 1.0]])))
    draw = sampler.draw(uniforms)
    expected = 1 / (4 * draw.probabilities) if unbiased else torch.ones(1, 4, dtype=torch.float64)
    assert torch.allclose(sampler.weights(draw).double(), expected, rtol=1e-6)
