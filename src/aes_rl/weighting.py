"""Importance weights: the only place where a weight is made.

A weight multiplies one sample's term in *every* loss of an update. It is not a priority and not a network parameter.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.backends import AbstractBackend, Forms, fused
from aes_rl.types import Array, Draw


def unbiased(draw: Draw, backend: AbstractBackend[Array], dtype: torch.dtype = torch.float32) -> Float[Tensor, "P B"]:
    """1 / (n · p(i)): the weighted mean over draws from p is unbiased for the uniform mean."""
    return backend.inverse_probabilities(draw.probabilities_view, draw.size, dtype)


def ones(draw: Draw, dtype: torch.dtype = torch.float32) -> Float[Tensor, "P B"]:
    """No correction: the objective is the one of the distribution that is drawn from."""
    return torch.ones(draw.slots.shape, dtype=dtype, device=draw.slots.device)


@fused
def _annealed(
    probabilities: Float[Tensor, "P B"], exponent: Float[Tensor, "P 1"], dtype: torch.dtype
) -> Float[Tensor, "P B"]:
    """(n·p(i))^(−exponent), divided by the largest of the member's batch: the weights of prioritized replay.

    Biased for the uniform mean by design, even at exponent 1, because of the division, in which n cancels.
    """
    smallest = probabilities.amin(dim=-1, keepdim=True)  # its weight is the largest
    return (smallest / probabilities).pow(exponent).to(dtype)


ANNEALED = Forms(_annealed, loops="aes_rl.samplers.priorities_loops:annealed")
"""Takes the probabilities of a draw, the exponent of each member and the data type of the weights."""
