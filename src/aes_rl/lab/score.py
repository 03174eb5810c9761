"""A sampler simulated on a recorded problem: draws, feedback and all, in seconds, without training anything.

The record holds every so many-th slot, so the simulated buffer is that much smaller and draws that many times fewer
slots an update: each slot is visited as often as it would have been. Several updates make one round with one draw of
whole slots. What a sampler hears is a recorded norm, under one of the recorded draws of the update's noise; between two
moments, the nearer of them is the likelier.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from aes_rl.errors import UserError
from aes_rl.lab.trace import Trace
from aes_rl.lab.variance import captured_fraction, oracle_cost, uniform_cost
from aes_rl.samplers.adaptive import default_forget_every
from aes_rl.samplers.registry import overwriting_the_oldest, rule_for
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Signals

Array = np.ndarray[Any, Any]
_DRAWS_A_ROUND = 16
_FEWEST_SLOTS = 200
"""Moments with fewer recorded slots say too little."""


@dataclass(frozen=True)
class Point:
    """A sampler at one recorded moment."""

    live: int
    """Live slots of the real buffer."""
    captured_fraction: float
    oracle_ratio: float
    """f(p*)/f(u)."""
    by_network: dict[str, float]
    """The captured fraction of every network's own gradient."""


class Clock:
    """Which thinned slots have been written when."""

    def __init__(self, trace: Trace):
        facts = trace.facts
        self._capacity, self._thinning = facts.capacity, facts.thinning
        self.slots = -(-facts.capacity // facts.thinning)

    def written(self, insertions: int) -> int:
        """Recorded slots written, the same one several times included, by so many insertions."""
        laps, rest = divmod(insertions, self._capacity)
        return laps * self.slots + -(-rest // self._thinning)

    def last_written(self, slots: Array, insertions: int) -> Array:
        """The insertion, from 0, that wrote what recorded slots hold."""
        own = slots * self._thinning
        laps = (insertions - 1 - own) // self._capacity
        written: Array = own + laps * self._capacity
        return written


def score_of(config: Any, trace: Trace, batch_size: int | None = None, seed: int = 1) -> list[Point]:
    """Captured fractions of a sampler at the recorded moments, with the record's batch size or another."""
    facts = trace.facts
    batch = facts.batch_size if batch_size is None else batch_size
    updates_a_round = _DRAWS_A_ROUND * facts.thinning / batch
    clock = Clock(trace)
    last = int(trace.insertions[-1])
    rounds = int((last - facts.warm_up_steps) / updates_a_round)
    sampler = Sampler([in_rounds(config, updates_a_round, facts.capacity)], capacity=clock.slots, total_updates=rounds)
    streams = Streams([seed], sampler.engine)
    generator = np.random.default_rng(seed)
    written, moment, points = 0, 0, []
    for number in range(1, rounds + 1):
        insertions = facts.warm_up_steps + int(number * updates_a_round)
        while written < clock.written(insertions):
            sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
            written += 1
        draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(number), _DRAWS_A_ROUND))
        sampler.feedback(draw, heard(trace, clock, draw.slots[0].numpy(), insertions, generator))
        sampler.advance(number)
        while moment < len(trace.insertions) and trace.insertions[moment] <= insertions:
            if len(sampler) >= _FEWEST_SLOTS and trace.insertions[moment] > facts.warm_up_steps:
                points.append(_point(trace, moment, sampler))
            moment += 1
    if not points:
        raise UserError(
            f"{trace.name} has no moment with {_FEWEST_SLOTS} recorded slots; record more of them (--traced-slots), or "
            "thin less"
        )
    return points


def heard(trace: Trace, clock: Clock, slots: Array, insertions: int, generator: np.random.Generator) -> Signals:
    """Squared norms and TD errors that recorded slots report after so many insertions."""
    after = min(int(np.searchsorted(trace.insertions, insertions)), len(trace.insertions) - 1)
    before = max(after - 1, 0)
    start, end = int(trace.insertions[before]), int(trace.insertions[after])
    progress = (insertions - start) / (end - start) if end > start else 1.0
    # A slot written since the earlier moment, or overwritten by the later one, has only the other of them.
    written = clock.last_written(slots, insertions)
    is_later = generator.random(len(slots)) < progress
    is_later |= written >= start
    is_later &= written + trace.facts.capacity >= end
    moments = np.where(is_later, after, before)
    noise = generator.integers(0, trace.logs.shape[1], len(slots))
    # Probabilities here are larger by the thinning; a sampler with a scale of its own sees sums of the real size.
    norms = {
        name: torch.from_numpy(np.exp(logs[moments, noise, slots].astype(np.float64)) * trace.facts.thinning)[None]
        for name, logs in trace.networks.items()
    }
    return Signals(torch.from_numpy(np.exp(trace.errors[moments, noise, slots].astype(np.float64)))[None], norms)


def in_rounds(config: Any, updates_a_round: float, capacity: int) -> Any:
    """A sampler's options with updates counted in rounds, overwriting the oldest slot as the record does."""
    options: dict[str, Any] = {}
    for name in rule_for(config).updates_options:
        value = getattr(config, name)
        if value is None:
            value = default_forget_every(capacity)
        options[name] = max(1, round(value / updates_a_round))
    return overwriting_the_oldest(config, **options)


def expected(trace: Trace, moment: int, slots: int, network: str | None = None) -> torch.Tensor:
    """E d(i) over the noise at a recorded moment, of all networks together or of one, [n]."""
    logs = trace.logs if network is None else trace.networks[network]
    return torch.from_numpy(np.exp(logs[moment, :, :slots].astype(np.float64)).mean(axis=0))


def _point(trace: Trace, moment: int, sampler: Sampler) -> Point:
    # A slot written within this round, after the moment, is not in its record yet.
    norms = expected(trace, moment, len(sampler))
    is_there = norms > 0
    norms, probabilities = norms[is_there], sampler.probabilities()[0, is_there]
    probabilities = probabilities / probabilities.sum()
    own = {name: expected(trace, moment, len(sampler), name)[is_there] for name in trace.networks}
    return Point(
        min(int(trace.insertions[moment]), trace.facts.capacity),
        captured_fraction(norms, probabilities).item(),
        (oracle_cost(norms) / uniform_cost(norms)).item(),
        {name: captured_fraction(part, probabilities).item() for name, part in own.items()},
    )
