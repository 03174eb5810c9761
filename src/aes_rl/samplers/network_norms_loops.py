"""The balanced signal as a compiled CPU loop; the reference is `_balanced` in `network_norms`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor


def balance(
    sums: NDArray[np.float64],
    weights: Tensor,
    is_current: NDArray[np.bool_],
    norms: list[NDArray[np.floating]],
    keep: float,
) -> NDArray[np.float64]:
    """Update the networks' means with a report; return the sum of the norms, each divided by its network's mean."""
    total = np.zeros(weights.shape)
    own_weights = weights.numpy()
    _count(sums, own_weights, is_current, keep)
    for number, norm in enumerate(norms, start=1):
        _add_share(sums, number, own_weights, is_current, norm, total)
    return total


@njit(cache=True)
def _count(sums, weights, is_current, keep):
    for member in range(weights.shape[0]):
        for k in range(sums.shape[1]):
            sums[member, k] *= keep
        for position in range(weights.shape[1]):
            if is_current[member, position]:
                sums[member, 0] += weights[member, position]


@njit(cache=True)
def _add_share(sums, number, weights, is_current, norms, total):
    for member in range(weights.shape[0]):
        for position in range(weights.shape[1]):
            if is_current[member, position]:
                sums[member, number] += weights[member, position] * norms[member, position]
        mean = max(sums[member, number] / max(sums[member, 0], 1e-300), 1e-300)
        for position in range(weights.shape[1]):
            if is_current[member, position]:
                total[member, position] += norms[member, position] / mean
