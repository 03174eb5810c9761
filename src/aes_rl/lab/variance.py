"""How much gradient variance a selection distribution removes: the project's yardstick (S3–S5)."""

import torch
from jaxtyping import Float
from torch import Tensor


def cost(squared_norms: Float[Tensor, "*P n"], probabilities: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(p) = Σ_i d(i)/p(i) (S3), which the variance of the gradient estimate follows."""
    return (squared_norms / probabilities).sum(dim=-1)


def uniform_cost(squared_norms: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(u) = n · Σ_i d(i) (S4)."""
    return squared_norms.shape[-1] * squared_norms.sum(dim=-1)


def oracle_cost(squared_norms: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(p*) = (Σ_i √d(i))² (S4), the least any distribution reaches."""
    return squared_norms.sqrt().sum(dim=-1).square()


def captured_fraction(
    squared_norms: Float[Tensor, "*P n"], probabilities: Float[Tensor, "*P n"]
) -> Float[Tensor, "*P"]:
    """(f(u) − f(p)) / (f(u) − f(p*)) (S5): 0 for uniform, 1 for the oracle, negative if worse than uniform.

    Not a number where all norms are equal and there is nothing to capture.
    """
    squared_norms, probabilities = squared_norms.double(), probabilities.double()
    uniform = uniform_cost(squared_norms)
    possible = uniform - oracle_cost(squared_norms)
    rounding = squared_norms.shape[-1] * torch.finfo(torch.float64).eps * uniform
    return torch.where(possible > rounding, (uniform - cost(squared_norms, probabilities)) / possible, torch.nan)
