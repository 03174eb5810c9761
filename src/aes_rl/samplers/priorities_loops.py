"""Compiled CPU loops for the priorities and weights of prioritized replay, as in `priorities` and `weighting`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.backends.numba.tree import NUMPY_TYPES
from aes_rl.samplers.priorities import LARGEST_ERROR


def reported(
    error: NDArray[np.floating],
    is_current: NDArray[np.bool_],
    largest: NDArray[np.float64],
    smallest: float,
    added: float,
    exponent: float,
) -> NDArray[np.float64]:
    """The priorities of TD errors: (max(|δ|, smallest) + added)^exponent.

    Updates `largest`, each member's largest priority so far, in place, from the slots that are still current.
    """
    priorities = np.empty(error.shape)
    _reported(error, is_current, largest, smallest, added, exponent, priorities)
    return priorities


def annealed(
    probabilities: NDArray[np.float64], exponent: NDArray[np.float64], dtype: torch.dtype
) -> Float[Tensor, "p B"]:
    """(n·p(i))^(−exponent), divided by its largest value in the member's batch; n cancels."""
    weights = np.empty(probabilities.shape, NUMPY_TYPES[dtype])
    _annealed(probabilities, exponent, weights)
    return torch.from_numpy(weights)


@njit(cache=True)
def _reported(error, is_current, largest, smallest, added, exponent, priorities):
    for member in range(error.shape[0]):
        for position in range(error.shape[1]):
            shifted = min(max(np.float64(abs(error[member, position])), smallest), LARGEST_ERROR) + added
            priorities[member, position] = shifted**exponent
            if is_current[member, position]:
                largest[member, 0] = max(largest[member, 0], priorities[member, position])


@njit(cache=True, error_model="numpy")
def _annealed(probabilities, exponent, weights):
    for member in range(probabilities.shape[0]):
        smallest = probabilities[member].min()  # its weight is the largest
        for position in range(probabilities.shape[1]):
            weights[member, position] = (smallest / probabilities[member, position]) ** exponent[member, 0]
