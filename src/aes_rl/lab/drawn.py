"""The variance that mini-batch gradients really have: drawn, differentiated and compared, to check the formula by."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl import checks
from aes_rl.agents import AbstractAgent
from aes_rl.errors import UserError
from aes_rl.lab.measure import expected_norms
from aes_rl.lab.variance import cost
from aes_rl.replay import Replay


@dataclass(frozen=True)
class Comparison:
    """The variance of one member's mini-batch gradient under weights of 1/(n·p), all networks together."""

    formula: float
    """(f(p)/n² − ‖ḡ‖²)/|Ψ|, from every live slot."""
    drawn: float
    """The mean of ½‖g − g'‖² over pairs of drawn batches."""
    low: float
    high: float
    """Bootstrap interval of what was drawn."""


def compare(
    agent: AbstractAgent,
    replay: Replay,
    batch_size: int,
    pairs: int,
    noise_draws: int = 4,
    seed: int = 0,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Formula and drawn batches of every member. Parameters, buffer and random streams stay as they are."""
    checks.count("pairs", pairs)
    live = len(replay)
    if live == 0:
        raise UserError("the replay is empty; there is no gradient to measure")
    probabilities = replay.sampler.probabilities().cpu().double()[:, :live]
    norms = expected_norms(agent, replay, np.arange(live), noise_draws, seed=seed)
    formula = (cost(norms.total, probabilities) / live**2 - norms.of_mean) / batch_size
    generator = torch.Generator().manual_seed(seed + 1)
    halves = torch.stack(
        [_half_squared_distance(agent, replay, probabilities, batch_size, generator) for _ in range(pairs)], dim=1
    )
    edges = ((1 - confidence) / 2, (1 + confidence) / 2)
    comparisons = []
    for expected, own in zip(formula.tolist(), halves.numpy(), strict=True):
        means = np.random.default_rng(seed).choice(own, (2000, pairs)).mean(axis=1)
        comparisons.append(Comparison(expected, float(own.mean()), *np.quantile(means, edges).tolist()))
    return comparisons


def _half_squared_distance(
    agent: AbstractAgent,
    replay: Replay,
    probabilities: Float[Tensor, "P n"],
    batch_size: int,
    generator: torch.Generator,
) -> Float[Tensor, "P"]:
    """½‖g − g'‖² of two independent batches, whose expectation is the variance of one."""
    members, live = probabilities.shape
    rows = replay.storage.rows
    total = torch.zeros(members, dtype=torch.float64)
    first: list[Tensor] = []
    for turn in range(2):
        slots = torch.multinomial(probabilities, batch_size, replacement=True, generator=generator)
        weights = (1 / (live * probabilities.gather(1, slots))).to(rows)
        noise = torch.randn(members, agent.noise_size(batch_size), generator=generator, dtype=rows.dtype)
        batch = replay.storage.read(slots.numpy() if replay.sampler.engine.name == "numba" else slots.to(rows.device))
        agent.differentiate(batch, weights, noise.to(rows.device), None)
        gradients = [p.grad for network in agent.trained().values() for p in network.parameters() if p.grad is not None]
        if turn == 0:
            first = [gradient.clone() for gradient in gradients]
            continue
        for one, other in zip(first, gradients, strict=True):
            total += (one - other).double().square().reshape(members, -1).sum(dim=1).cpu() / 2
    return total
