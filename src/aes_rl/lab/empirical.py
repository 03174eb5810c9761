"""The empirical variance of mini-batch gradients: batches are drawn and differentiated to check the formula."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl import checks
from aes_rl.agents import AbstractAgent
from aes_rl.errors import UserError
from aes_rl.lab.measure import measure
from aes_rl.replay import Replay
from aes_rl.types import ActorBatch

_RESAMPLES = 2000
"""Of the bootstrap."""


@dataclass(frozen=True)
class Comparison:
    """The variance of one member's mini-batch gradient, weighted by 1/(n·p) and summed over networks."""

    formula: float
    """(f(p)/n² − ‖ḡ‖²)/|Ψ|, from all live slots."""
    empirical: float
    """The mean of ½‖g − g'‖² over pairs of drawn batches."""
    low: float
    high: float
    """Bootstrap interval of the empirical variance."""


def compare(
    agent: AbstractAgent,
    replay: Replay,
    batch_size: int,
    pairs: int,
    noise_samples: int = 4,
    seed: int = 0,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Formula and empirical variance of every member. Parameters, buffer and random streams do not change."""
    checks.count("pairs", pairs)
    live = len(replay)
    if live == 0:
        raise UserError("the replay is empty; there is no gradient to measure")
    probabilities = replay.sampler.probabilities().cpu().double()[:, :live]
    formula = [reading.variance for reading in measure(agent, replay, batch_size, None, noise_samples, seed=seed)]
    generator = torch.Generator().manual_seed(seed + 1)
    distances = torch.stack(
        [_half_squared_distance(agent, replay, probabilities, batch_size, generator) for _ in range(pairs)], dim=1
    )
    edges = ((1 - confidence) / 2, (1 + confidence) / 2)
    comparisons = []
    for expected, own in zip(formula, distances.numpy(), strict=True):
        means = np.random.default_rng(seed).choice(own, (_RESAMPLES, pairs)).mean(axis=1)
        comparisons.append(Comparison(expected, float(own.mean()), *np.quantile(means, edges).tolist()))
    return comparisons


def _half_squared_distance(
    agent: AbstractAgent,
    replay: Replay,
    probabilities: Float[Tensor, "P n"],
    batch_size: int,
    generator: torch.Generator,
) -> Float[Tensor, "P"]:
    """½‖g − g'‖² of two independent batches; its expectation is the variance of one."""
    members = len(replay.streams.seeds)
    first = [gradient.clone() for gradient in _gradients(agent, replay, probabilities, batch_size, generator)]
    second = _gradients(agent, replay, probabilities, batch_size, generator)
    total = torch.zeros(members, dtype=torch.float64)
    for one, other in zip(first, second, strict=True):
        total += (one - other).double().square().reshape(members, -1).sum(dim=1).cpu() / 2
    return total


def _gradients(
    agent: AbstractAgent,
    replay: Replay,
    probabilities: Float[Tensor, "P n"],
    batch_size: int,
    generator: torch.Generator,
) -> list[Tensor]:
    """The parameters' gradients for one drawn batch; the next call overwrites them."""
    members, live = len(replay.streams.seeds), probabilities.shape[1]
    rows, own = replay.storage.rows, replay.network_draws
    slots = torch.multinomial(probabilities, batch_size, replacement=True, generator=generator)
    weights = (1 / (live * probabilities.gather(1, slots))).to(rows)
    noise = torch.randn(members, agent.noise_size(batch_size), generator=generator, dtype=rows.dtype).to(rows.device)
    actor = ActorBatch(replay.read(slots[own.actor_members]), weights[own.actor_members]) if own else None
    agent.differentiate(replay.read(slots[:members]), weights[:members], noise, None, actor)
    return [p.grad for network in agent.trained().values() for p in network.parameters() if p.grad is not None]
