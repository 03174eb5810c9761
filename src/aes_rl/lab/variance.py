"""The cost of a selection distribution and the fraction of the removable gradient variance that it captures.

Notation of docs/laboratory.md: d(i) is the squared norm of slot i's gradient, p the distribution over n slots, u the
uniform one and p* the best one.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def cost(squared_norms: Float[Tensor, "*P n"], probabilities: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(p) = Σ_i d(i)/p(i); a batch's mean gradient has the variance (f(p)/n² − ‖ḡ‖²)/|Ψ|."""
    return (squared_norms / probabilities).sum(dim=-1)


def uniform_cost(squared_norms: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(u) = n · Σ_i d(i)."""
    return squared_norms.shape[-1] * squared_norms.sum(dim=-1)


def oracle_cost(squared_norms: Float[Tensor, "*P n"]) -> Float[Tensor, "*P"]:
    """f(p*) = (Σ_i √d(i))², the minimum, reached by p*(i) ∝ √d(i)."""
    return squared_norms.sqrt().sum(dim=-1).square()


def best_with_floor(squared_norms: Float[Tensor, "*P n"], floor: float) -> Float[Tensor, "*P n"]:
    """The distribution with the least f among those with p(i) ≥ κ/n: max(κ/n, c·√d(i)), with c so that they sum to 1.

    Any of them is (1−κ)·q(i) + κ/n for some distribution q.
    """
    slots, roots = squared_norms.shape[-1], squared_norms.double().sqrt()
    highest = roots.sort(dim=-1, descending=True).values
    above = torch.arange(1, slots + 1, dtype=torch.float64)
    # c if the k largest norms are those above the floor, for every k; it holds up to the last k whose k-th norm is.
    factors = (1 - floor * (slots - above) / slots) / highest.cumsum(dim=-1).clamp(min=1e-300)
    is_above = (factors * highest >= floor / slots) & (highest > 0)
    last = (is_above * above).argmax(dim=-1, keepdim=True)
    return (factors.gather(-1, last) * roots).clamp(min=floor / slots)


def captured_fraction(
    squared_norms: Float[Tensor, "*P n"], probabilities: Float[Tensor, "*P n"]
) -> Float[Tensor, "*P"]:
    """(f(u) − f(p)) / (f(u) − f(p*)): 0 for uniform, 1 for the oracle, negative if worse than uniform.

    nan where all norms are equal: there is no variance to remove.
    """
    squared_norms, probabilities = squared_norms.double(), probabilities.double()
    uniform, own = uniform_cost(squared_norms), cost(squared_norms, probabilities)
    return fraction_of_costs(uniform, own, oracle_cost(squared_norms), squared_norms.shape[-1])


def fraction_of_costs(
    uniform: Float[Tensor, "*P"], own: Float[Tensor, "*P"], oracle: Float[Tensor, "*P"], slots: int
) -> Float[Tensor, "*P"]:
    """(f(u) − f(p)) / (f(u) − f(p*)) over a number of slots; nan where nothing can be removed."""
    removable = uniform - oracle
    rounding = slots * torch.finfo(torch.float64).eps * uniform
    return torch.where(removable > rounding, (uniform - own) / removable, torch.nan)
