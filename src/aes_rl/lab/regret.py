"""The regret of adaptive selection on synthetic streams of gradient norms, whose best distribution is known.

Static regret is against the best single distribution, whose cost is (Σ_i √(Σ_t d_t(i)))²; dynamic regret is against
p*_t at every update. The samplers are those that train agents. Norms lie between 0 and 1, so G² = 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.lab import theory
from aes_rl.lab.simulate import with_one_draw
from aes_rl.lab.variance import cost, oracle_cost, uniform_cost
from aes_rl.samplers.adaptive import Adaptive, default_forget_every
from aes_rl.samplers.full_information import FullInformation
from aes_rl.samplers.naive import Naive
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Signal, Signals

Norms = Callable[[int], NDArray[np.float64]]
"""The squared norms of all slots at an update, counted from 0."""


@dataclass(frozen=True)
class Regret:
    """Mean and standard error over runs, divided by |B|²."""

    updates: int
    static: float
    static_error: float
    dynamic: float
    dynamic_error: float
    uniform: float
    """Uniform sampling's dynamic regret on the same stream."""


def constant(slots: int, updates: int, seed: int = 0) -> Norms:
    """Lognormal norms with independent noise at every update: the best distribution stays nearly the same."""
    del updates
    size = _sizes(slots, np.random.default_rng(seed))
    return lambda update: size * np.random.default_rng((seed, 1, update)).uniform(0.5, 1.5, slots) / 1.5


def alternating(slots: int, updates: int, seed: int = 0) -> Norms:
    """Norms that are permuted once, halfway through: the sums of the first half then mislead for a long time."""
    generator = np.random.default_rng(seed)
    size = _sizes(slots, generator)
    other = generator.permutation(size)
    return lambda update: size if update < updates // 2 else other


def wandering(slots: int, updates: int, seed: int = 0, swings: float = 4) -> Norms:
    """Norms that oscillate by a factor of e², each with its own period: the best distribution always moves."""
    period = updates / swings
    generator = np.random.default_rng(seed)
    size, phase = _sizes(slots, generator), generator.uniform(0, 2 * math.pi, slots)
    frequency = 2 * math.pi / (period * generator.uniform(0.5, 2, slots))
    return lambda update: size * np.exp(np.sin(frequency * update + phase) - 1)


STREAMS: dict[str, Callable[[int, int], Norms]] = {
    "constant": constant,
    "alternating": alternating,
    "wandering": wandering,
}
"""Streams by name, from slots and updates."""


def regret_of(
    config: SamplerConfig | str,
    norms: Norms,
    slots: int,
    updates: int,
    batch_size: int = 1,
    runs: int = 8,
    overwrite_every: int | None = None,
) -> Regret:
    """Regret of a sampler over a stream, averaged over runs with different random draws.

    With `overwrite_every`, the oldest slot is overwritten each time after that many updates, as in training; the
    stream continues to give its norms.
    """
    sampler = Sampler([with_one_draw(config)] * runs, capacity=slots, total_updates=updates)
    streams = Streams(range(runs), sampler.backend)
    for _ in range(slots):
        _place(sampler, streams)
    has_full_information = Signal.EVERY_GRADIENT_NORM in sampler.needs
    costs = torch.zeros(runs, dtype=torch.float64)
    best, uniform, total = 0.0, 0.0, torch.zeros(slots, dtype=torch.float64)
    for update in range(updates):
        now = torch.from_numpy(norms(update))
        costs += cost(now, sampler.probabilities())
        best += oracle_cost(now).item()
        uniform += uniform_cost(now).item()
        total += now
        if has_full_information:
            sampler.observe_all(now.expand(runs, -1))
        else:
            draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(update), batch_size))
            seen = now[draw.slots]
            sampler.feedback(draw, Signals(seen.sqrt(), {"all": seen}))
        sampler.advance(update + 1)
        if overwrite_every and (update + 1) % overwrite_every == 0:
            _place(sampler, streams)
    static, dynamic = (costs - oracle_cost(total)) / slots**2, (costs - best) / slots**2
    return Regret(
        updates,
        static.mean().item(),
        _error(static),
        dynamic.mean().item(),
        _error(dynamic),
        (uniform - best) / slots**2,
    )


def slope(updates: Sequence[int], regrets: Sequence[float]) -> float:
    """The exponent with which regret grows in T, by a least-squares fit of the logarithms."""
    return float(np.polyfit(np.log(updates), np.log(regrets), 1)[0])


def full_information() -> FullInformation:
    """The sampler of Corollary 1."""
    return FullInformation(nu=1.0, overwrite="fifo")


def partial_information(slots: int, updates: int, is_implied: bool) -> Adaptive:
    """The sampler of Corollary 2, with the ν of its statement or the one that its proof implies."""
    floor = theory.exploration(slots, updates)
    nu = theory.implied_nu(slots, floor, 1.0) if is_implied else 1.0
    return Adaptive(floor=floor, nu=nu, retention=1.0, overwrite="fifo")


def dynamic(slots: int, floor: float, nu: float, forget_every: int | None = None, retention: float = 0.0) -> Adaptive:
    """The sampler of Algorithm 2: scales its sums by `retention` every M updates; by default M² < |B|."""
    every = forget_every or default_forget_every(slots)
    return Adaptive(floor=floor, nu=nu, retention=retention, forget_every=every, overwrite="fifo")


def naive(floor: float, nu: float, updates_per_epoch: int) -> Naive:
    """The sampler of Algorithm 1."""
    return Naive(updates_per_epoch=updates_per_epoch, floor=floor, nu=nu)


def _error(values: Float[Tensor, "runs"]) -> float:
    """Standard error of the mean; zero for a single run."""
    return values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _place(sampler: Sampler, streams: Streams) -> None:
    sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))


def _sizes(slots: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Lognormal norms for which uniform sampling costs 2.5 times the minimum, scaled to at most 1."""
    size = np.exp(generator.normal(0, math.sqrt(4 * math.log(2.5)), slots))
    scaled: NDArray[np.float64] = size / size.max()
    return scaled
