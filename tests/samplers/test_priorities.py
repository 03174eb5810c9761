"""Prioritized replay against its formulas, slot by slot in plain Python."""

import pytest
import torch

from aes_rl import Prioritized, Sampler, Signals

SLOTS, BATCH, MEMBERS = 12, 5, 3
EXPONENT, ADDED, WEIGHT_EXPONENT = 0.7, 0.05, 0.3


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_probabilities_and_weights_follow_the_last_errors(backend) -> None:
    """Repeated slots and slots overwritten between draw and report, for several members."""
    config = Prioritized(EXPONENT, WEIGHT_EXPONENT, None, smallest_error=ADDED)
    sampler = Sampler([config] * MEMBERS, capacity=SLOTS, backend=backend)
    generator = torch.Generator().manual_seed(0)

    def uniforms(count):
        return sampler.backend.view(torch.rand(MEMBERS, count, generator=generator, dtype=torch.float64))

    masses, largest, late = [{} for _ in range(MEMBERS)], [1.0] * MEMBERS, 0

    def place():
        written = torch.as_tensor(sampler.place(uniforms(4))).tolist()
        for member, slots in enumerate(written):
            masses[member].update(dict.fromkeys(slots, largest[member]))
        return written

    for number in range(60):
        place()
        draw = sampler.draw(uniforms(BATCH))
        found = sampler.weights(draw)
        overwritten = place() if number % 3 == 0 else [[]] * MEMBERS
        errors = 6 * torch.rand(MEMBERS, BATCH, generator=generator) - 3
        sampler.feedback(draw, Signals(td_error=errors))
        for member in range(MEMBERS):
            raw = [(len(sampler) * p) ** -WEIGHT_EXPONENT for p in draw.probabilities[member].tolist()]
            assert found[member].tolist() == pytest.approx([weight / max(raw) for weight in raw], rel=1e-6)
            for slot, error in zip(draw.slots[member].tolist(), errors[member].tolist(), strict=True):
                if slot in overwritten[member]:
                    late += 1
                    continue
                masses[member][slot] = (abs(error) + ADDED) ** EXPONENT
                largest[member] = max(largest[member], masses[member][slot])
            expected = torch.tensor([masses[member][slot] for slot in range(len(sampler))], dtype=torch.float64)
            assert torch.allclose(sampler.probabilities()[member], expected / expected.sum(), rtol=1e-6)
    assert late, "nothing was overwritten"


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_huge_errors_leave_a_finite_total(backend) -> None:
    sampler = Sampler([Prioritized(1.0, weight_exponent_end=None)], capacity=4, backend=backend)
    sampler.place(sampler.backend.view(torch.rand(1, 6, dtype=torch.float64)))
    draw = sampler.draw(sampler.backend.view(torch.tensor([[0.1, 0.4, 0.9]], dtype=torch.float64)))
    assert draw.slots.tolist() == [[0, 1, 2]]
    sampler.feedback(draw, Signals(torch.full((1, 3), 1.7e308, dtype=torch.float64)))
    sampler.check()
    assert sampler.probabilities().tolist() == [pytest.approx([1 / 3] * 3)]
