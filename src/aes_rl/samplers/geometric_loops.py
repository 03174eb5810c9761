"""Geometric selection as a compiled CPU loop; the reference implementation is in `geometric`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.samplers.geometric import LARGEST_LOG


def write(written: NDArray[np.int32], clocks: NDArray[np.int64], slots: Tensor, rate: float) -> NDArray[np.float64]:
    """Record which insertions wrote the slots; return their masses."""
    masses = np.empty(slots.shape)
    _write(written, clocks, slots.numpy(), rate, masses)
    return masses


@njit(cache=True)
def _write(written, clocks, slots, rate, masses):
    for k in range(slots.shape[1]):
        arrival = clocks[0] + k + 1
        for member in range(slots.shape[0]):
            written[member, np.uint64(slots[member, k])] = arrival
            log = rate * np.float64(arrival - clocks[1])
            masses[member, k] = np.exp(min(max(log, -LARGEST_LOG), LARGEST_LOG))
    clocks[0] += slots.shape[1]
