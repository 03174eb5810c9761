"""Costs of distributions: the best one with a floor against a search among others."""

import pytest
import torch

from aes_rl.lab.variance import best_with_floor, captured_fraction, cost


@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("floor", [0.1, 0.5, 0.9, 1.0])
def test_no_distribution_with_the_floor_is_better(floor, spread) -> None:
    generator = torch.Generator().manual_seed(0)
    norms = (spread * torch.randn(3, 200, generator=generator, dtype=torch.float64)).exp()
    norms[:, :5] = 0
    best = best_with_floor(norms, floor)
    assert torch.allclose(best.sum(dim=-1), torch.ones(3, dtype=torch.float64))
    assert bool((best >= floor / 200 * (1 - 1e-12)).all())
    least = cost(norms, best)
    for power in (0.25, 0.4, 0.5, 0.6, 1.0):
        masses = norms**power
        other = (1 - floor) * masses / masses.sum(dim=-1, keepdim=True) + floor / 200
        assert bool((least <= cost(norms, other) * (1 + 1e-12)).all())
    nudged = best + 0.01 * (best - floor / 200) * torch.randn(50, 3, 200, generator=generator, dtype=torch.float64)
    nudged = floor / 200 + (nudged - floor / 200) * (1 - floor) / (nudged - floor / 200).sum(dim=-1, keepdim=True)
    assert floor == 1 or bool((least <= cost(norms, nudged) * (1 + 1e-9)).all())


def test_the_best_with_a_floor_is_the_oracle_where_the_floor_does_not_bind() -> None:
    norms = torch.tensor([1.0, 1.2, 0.9, 1.1])
    assert captured_fraction(norms, best_with_floor(norms, 0.1)).item() == pytest.approx(1)
