"""The sums of adaptive experience selection as compiled CPU loops; the reference implementation is in `accumulator`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.backends.numba.prefetch import prefetch


def accumulate(
    sums: NDArray[np.float64],
    slots: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    squared_norms: NDArray[np.floating],
    is_current: NDArray[np.bool_],
    nu: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Add d(i)/p(i) for every draw; return the masses of the drawn slots."""
    masses = np.empty(slots.shape)
    _accumulate(sums, slots, probabilities, squared_norms, is_current, nu, masses)
    return masses


def clear(sums: NDArray[np.float64], slots: Tensor, nu: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set the sums of slots just written to 0; return their masses."""
    masses = np.empty(slots.shape)
    _clear(sums, slots.numpy(), nu, masses)
    return masses


@njit(cache=True)
def _accumulate(sums, slots, probabilities, squared_norms, is_current, nu, masses):
    for member in range(slots.shape[0]):
        for position in range(slots.shape[1]):
            prefetch(sums[member], np.uint64(slots[member, position]))
        for position in range(slots.shape[1]):
            if is_current[member, position]:
                slot = np.uint64(slots[member, position])
                sums[member, slot] += squared_norms[member, position] / probabilities[member, position]
        for position in range(slots.shape[1]):
            masses[member, position] = np.sqrt(sums[member, np.uint64(slots[member, position])] + nu[member, 0])


@njit(cache=True)
def _clear(sums, slots, nu, masses):
    for member in range(slots.shape[0]):
        for k in range(slots.shape[1]):
            sums[member, slots[member, k]] = 0.0
            masses[member, k] = np.sqrt(nu[member, 0])
