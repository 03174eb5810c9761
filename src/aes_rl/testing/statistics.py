"""The statistical tests that the checks use, and their false-alarm rate."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

FALSE_ALARM = 1e-6
"""Probability that a statistical check fails for a correct sampler. Seeds are fixed, so results are reproducible."""


def frequency_p_value(slots: Int[Tensor, "B"], probabilities: Float[Tensor, "n"]) -> float:
    """P-value of Pearson's χ² test; rare slots are pooled to at least five expected draws."""
    order = probabilities.argsort()
    expected = probabilities[order] * slots.numel()
    observed = torch.bincount(slots, minlength=probabilities.numel())[order].double()
    pools = (expected.cumsum(0) / 5).floor().long()
    pools = torch.unique(pools, return_inverse=True)[1]
    # The last pool may have fewer than five; merge it with the one before.
    sums = torch.zeros(int(pools.max()) + 1, dtype=torch.float64).scatter_add_(0, pools, expected)
    if sums.numel() > 1 and sums[-1] < 5:
        pools = pools.clamp(max=sums.numel() - 2)
    count = int(pools.max()) + 1
    if count == 1:
        return 1.0
    wanted = torch.zeros(count, dtype=torch.float64).scatter_add_(0, pools, expected)
    found = torch.zeros(count, dtype=torch.float64).scatter_add_(0, pools, observed)
    statistic = ((found - wanted).square() / wanted).sum()
    freedom = torch.tensor((count - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


def mean_p_value(values: Float[Tensor, "B"], mean: float) -> float:
    """Two-sided p-value of a sample mean against the true mean, by the normal approximation."""
    spread = float(values.std(correction=0)) / values.numel() ** 0.5
    distance = abs(float(values.mean()) - mean)
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return 1.0 if distance <= 1e-9 * max(1.0, abs(mean)) else 0.0
    return float(torch.special.erfc(torch.tensor(distance / spread / 2**0.5, dtype=torch.float64)))
