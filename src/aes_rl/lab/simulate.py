"""A sampler simulated on synthetic gradient norms whose drift is known, without training an agent."""

import math
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from aes_rl.errors import UserError
from aes_rl.lab.variance import captured_fraction
from aes_rl.samplers.registry import resolve
from aes_rl.samplers.rule import SamplerConfig, candidates_per_draw, draws_per_network
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Signals

_WAVES = 6
"""Number of waves per slot in the part that drifts."""


class Problem(Protocol):
    """Squared gradient norms of the slots of a buffer over time."""

    slots: int

    def squared_norms(self, update: int, slots: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The squared norms of the given slots, or of all slots, at an update."""


class Drifting:
    """Lognormal squared norms d with a constant part and a part that drifts.

    log d(i, t) = σ·(√share · a(i) + √(1−share) · b(i, t)). The correlation of b(i, t) and b(i, t + k) is e^(−k/τ),
    because b is a sum of waves whose frequencies have a Cauchy distribution.
    """

    def __init__(self, slots: int, oracle_ratio: float, share: float, time_constant: float = 1.0, seed: int = 0):
        """`oracle_ratio` is f(p*)/f(u) = e^(−σ²/4), which determines the spread σ; `time_constant` is τ."""
        generator = np.random.default_rng(seed)
        self.slots = slots
        self._spread = math.sqrt(-4 * math.log(oracle_ratio))
        self._share = share
        self._constant = generator.normal(size=slots)
        self._frequency = generator.standard_cauchy((slots, _WAVES)) / time_constant
        self._phase = generator.uniform(0, 2 * math.pi, (slots, _WAVES))

    def squared_norms(self, update: int, slots: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The squared norms of the given slots, or of all slots, at an update."""
        chosen = slice(None) if slots is None else slots
        waves = np.cos(self._frequency[chosen] * update + self._phase[chosen])
        drifting = math.sqrt(2 / waves.shape[-1]) * waves.sum(axis=-1)
        logs = math.sqrt(self._share) * self._constant[chosen] + math.sqrt(1 - self._share) * drifting
        norms: NDArray[np.float64] = np.exp(self._spread * logs)
        return norms


def captured_over_time(
    config: SamplerConfig | str, problem: Problem, batch_size: int, updates: int, measurements: int = 5, seed: int = 1
) -> list[float]:
    """Simulate a sampler with the problem's norms as feedback; return its captured fractions at regular intervals."""
    sampler = Sampler([with_one_draw(config)], capacity=problem.slots, total_updates=updates)
    streams = Streams([seed], sampler.backend)
    for _ in range(problem.slots):
        sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
    captured = []
    for update in range(1, updates + 1):
        draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(update), batch_size))
        norms = torch.from_numpy(problem.squared_norms(update, draw.slots[0].numpy())).unsqueeze(0)
        sampler.feedback(draw, Signals(norms.sqrt(), {"all": norms}))
        sampler.advance(update)
        if update % max(1, updates // measurements) == 0:
            all_norms = torch.from_numpy(problem.squared_norms(update)).unsqueeze(0)
            captured.append(captured_fraction(all_norms, sampler.probabilities()).item())
    return captured


def with_one_draw(config: SamplerConfig | str) -> SamplerConfig:
    """The configuration, if one draw from one distribution is all it needs: a simulation has no networks."""
    config = resolve(config)
    if candidates_per_draw(config) > 1:
        raise UserError(f"{config} chooses among candidates by the learner's TD errors; a simulation has no learner")
    if draws_per_network(config):
        raise UserError(
            f"{config} draws separately for critics and actor, and a simulation draws once; on recorded problems "
            "networks=('critic',) and networks=('actor',) simulate either draw of a sampler with gradient norms"
        )
    return config
