"""A sampler simulated on a recorded problem, draws and feedback included, in seconds and without training an agent.

The record holds every k-th slot, so the simulated buffer is k times smaller and each update draws k times fewer slots:
each slot is drawn as often as in the real buffer. Several updates form one round with one draw of a whole number of
slots. The feedback is a recorded norm under one of the recorded noise samples, from one of the two neighbouring
moments, the nearer one with the higher probability.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl.errors import UserError
from aes_rl.lab.recorded import RecordedProblem
from aes_rl.lab.simulate import with_one_draw
from aes_rl.lab.variance import captured_fraction, oracle_cost, uniform_cost
from aes_rl.samplers.adaptive import default_forget_every
from aes_rl.samplers.registry import overwriting_the_oldest, rule_for
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Signals

_DRAWS_PER_ROUND = 16
_FEWEST_SLOTS = 200
"""Moments with fewer recorded slots are too noisy to score."""
TOLERANCE = 0.1
"""A score at n slots is the mean over the moments with between 0.9·n and n slots."""


@dataclass(frozen=True)
class Point:
    """A sampler at one recorded moment."""

    live: int
    """Live slots of the real buffer."""
    captured_fraction: float
    oracle_ratio: float
    """f(p*)/f(u)."""
    by_network: dict[str, float]
    """The captured fraction of each network's own gradient."""


@dataclass(frozen=True)
class Score:
    """One sampler on one problem with one batch size."""

    problem: str
    batch_size: int
    sampler: str
    points: list[Point] = field(repr=False)

    def at(self, slots: int) -> float:
        """The mean captured fraction near a number of live slots; nan where the problem has no such moment."""
        near = [p.captured_fraction for p in self.points if (1 - TOLERANCE) * slots <= p.live <= slots]
        return float(np.mean(near)) if near else float("nan")

    @property
    def lowest(self) -> float:
        """The lowest captured fraction at any moment."""
        return min(point.captured_fraction for point in self.points)


def write(scores: Sequence[Score], path: Path) -> None:
    """All points of all simulations, as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = ("problem", "batch_size", "sampler", "live_slots", "network", "captured_fraction", "oracle_ratio")
        writer.writerow(names)
        for score in scores:
            for point in score.points:
                start = (score.problem, score.batch_size, score.sampler, point.live)
                for network, captured in {"total": point.captured_fraction, **point.by_network}.items():
                    ratio = f"{point.oracle_ratio:.4f}" if network == "total" else ""
                    writer.writerow((*start, network, f"{captured:.4f}", ratio))


class Clock:
    """When each recorded slot was written."""

    def __init__(self, problem: RecordedProblem):
        facts = problem.facts
        self._capacity, self._thinning = facts.capacity, facts.thinning
        self.slots = -(-facts.capacity // facts.thinning)

    def written(self, insertions: int) -> int:
        """Writes to recorded slots, overwriting included, during the first `insertions` insertions."""
        laps, rest = divmod(insertions, self._capacity)
        return laps * self.slots + -(-rest // self._thinning)

    def last_written(self, slots: NDArray[np.int64], insertions: int) -> NDArray[np.int64]:
        """The insertion, from 0, that wrote the present content of recorded slots."""
        own = slots * self._thinning
        laps = (insertions - 1 - own) // self._capacity
        written: NDArray[np.int64] = own + laps * self._capacity
        return written


def score_of(
    config: SamplerConfig | str, problem: RecordedProblem, batch_size: int | None = None, seed: int = 1
) -> list[Point]:
    """Captured fractions of a sampler at the recorded moments, with the recorded run's batch size or another one."""
    facts = problem.facts
    batch = facts.batch_size if batch_size is None else batch_size
    updates_per_round = _DRAWS_PER_ROUND * facts.thinning / batch
    clock = Clock(problem)
    last = int(problem.insertions[-1])
    rounds = int((last - facts.warm_up_steps) / updates_per_round)
    scaled = in_rounds(with_one_draw(config), updates_per_round, facts.thinning, facts.capacity)
    sampler = Sampler([scaled], capacity=clock.slots, total_updates=rounds)
    streams = Streams([seed], sampler.backend)
    generator = np.random.default_rng(seed)
    written, moment, points = 0, 0, []
    for number in range(1, rounds + 1):
        insertions = facts.warm_up_steps + int(number * updates_per_round)
        while written < clock.written(insertions):
            sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
            written += 1
        draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(number), _DRAWS_PER_ROUND))
        sampler.feedback(draw, recorded_signals(problem, clock, draw.slots[0].numpy(), insertions, generator))
        sampler.advance(number)
        while moment < len(problem.insertions) and problem.insertions[moment] <= insertions:
            if len(sampler) >= _FEWEST_SLOTS and problem.insertions[moment] > facts.warm_up_steps:
                points.append(_point(problem, moment, sampler))
            moment += 1
    if not points:
        raise UserError(
            f"{problem.name} has no moment with {_FEWEST_SLOTS} recorded slots; record more of them (--traced-slots), "
            "or thin less"
        )
    return points


def recorded_signals(
    problem: RecordedProblem, clock: Clock, slots: NDArray[np.int64], insertions: int, generator: np.random.Generator
) -> Signals:
    """The feedback on recorded slots after so many insertions: squared norms and TD errors."""
    after = min(int(np.searchsorted(problem.insertions, insertions)), len(problem.insertions) - 1)
    before = max(after - 1, 0)
    start, end = int(problem.insertions[before]), int(problem.insertions[after])
    progress = (insertions - start) / (end - start) if end > start else 1.0
    # Only the later moment has a slot written since the earlier one; only the earlier one has a slot that is
    # overwritten before the later one.
    written = clock.last_written(slots, insertions)
    is_later = generator.random(len(slots)) < progress
    is_later |= written >= start
    is_later &= written + problem.facts.capacity >= end
    moments = np.where(is_later, after, before)
    noise = generator.integers(0, problem.logs.shape[1], len(slots))
    # The thinned buffer's probabilities are larger by the thinning; so are its norms, so that d(i)/p(i) has the real
    # size, which an absolute ν depends on.
    norms = {
        name: torch.from_numpy(np.exp(logs[moments, noise, slots].astype(np.float64)) * problem.facts.thinning)[None]
        for name, logs in problem.networks.items()
    }
    return Signals(torch.from_numpy(np.exp(problem.errors[moments, noise, slots].astype(np.float64)))[None], norms)


def in_rounds(config: SamplerConfig, updates_per_round: float, thinning: int, capacity: int) -> SamplerConfig:
    """A sampler's configuration in a simulation: updates count rounds, insertions count recorded slots, fifo."""
    rule = rule_for(config)
    options = {name: max(1, round(getattr(config, name) / thinning)) for name in rule.insertions_options}
    for name in rule.updates_options:
        value = getattr(config, name)
        if value is None:
            value = default_forget_every(capacity)
        options[name] = max(1, round(value / updates_per_round))
    return overwriting_the_oldest(config, **options)


def expected(problem: RecordedProblem, moment: int, slots: int, network: str | None = None) -> Float[Tensor, "n"]:
    """E d(i) over the noise at a recorded moment, of one network or summed over networks."""
    logs = problem.logs if network is None else problem.networks[network]
    return torch.from_numpy(np.exp(logs[moment, :, :slots].astype(np.float64)).mean(axis=0))


def _point(problem: RecordedProblem, moment: int, sampler: Sampler) -> Point:
    # A slot written after the moment, but within this round, has no recorded norm yet.
    norms = expected(problem, moment, len(sampler))
    is_recorded = norms > 0
    norms, probabilities = norms[is_recorded], sampler.probabilities()[0, is_recorded]
    probabilities = probabilities / probabilities.sum()
    own = {name: expected(problem, moment, len(sampler), name)[is_recorded] for name in problem.networks}
    return Point(
        min(int(problem.insertions[moment]), problem.facts.capacity),
        captured_fraction(norms, probabilities).item(),
        (oracle_cost(norms) / uniform_cost(norms)).item(),
        {name: captured_fraction(part, probabilities).item() for name, part in own.items()},
    )
