"""Simulated training runs of a sampler: reproducible insertions, draws, feedback and forgetting, without a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.samplers.rule import SamplerConfig
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Array, BackendName, Draw, Signal, Signals


@dataclass(frozen=True)
class Case:
    """A sampler configuration, and the number of members, the capacity and the backend to check it with."""

    config: SamplerConfig
    members: int = 1
    capacity: int = 64
    backend: BackendName = "numba"

    def seeds(self) -> tuple[int, ...]:
        """One seed per member."""
        return tuple(range(1, self.members + 1))


class SavedState(NamedTuple):
    """The saved state of a `SimulatedRun`."""

    state: dict[str, Tensor]
    """State of the sampler."""
    draws: int
    """Number of draws so far: the counter of the stream of draws."""
    updates: int


class SimulatedRun:
    """A sampler with its random streams, and simulated signals instead of a learner's.

    A signal depends only on the member's seed, the update and the position in the draw, not on the slot, so two runs
    with the same seeds get the same signals.
    """

    def __init__(self, case: Case, seeds: Sequence[int] | None = None, total_updates: int = 1000):
        self.seeds = case.seeds() if seeds is None else tuple(seeds)
        self.sampler = Sampler(
            [case.config] * len(self.seeds), capacity=case.capacity, total_updates=total_updates, backend=case.backend
        )
        self.streams = Streams(self.seeds, self.sampler.backend)
        self.draws = self.sampler.backend.counter()
        self.updates = 0

    def save(self) -> SavedState:
        """A copy of the sampler's state and of the counters."""
        state = {name: value.clone() for name, value in self.sampler.state_dict().items()}
        return SavedState(state, int(self.draws), self.updates)

    def load(self, saved: SavedState) -> None:
        """Continue from a saved state."""
        self.sampler.load_state_dict(saved.state)
        self.draws = self.sampler.backend.counter() + saved.draws
        self.updates = saved.updates

    def insert(self) -> Array:
        """Place one new transition per member; returns the slots, [P, 1]."""
        return self.sampler.place(self.streams.uniform(Stream.PLACE, self.sampler.distribution.clock, 2))

    def draw(self, batch: int) -> Draw:
        """Draw `batch` slots per member."""
        draw = self.sampler.draw(self.streams.uniform(Stream.DRAW, self.draws, batch))
        self.draws += 1
        return draw

    def update(self, batch: int = 8) -> Draw:
        """Make one update: draw `batch` slots per member, report simulated signals and advance the sampler."""
        draw = self.draw(batch)
        self.learn(draw)
        return draw

    def learn(self, draw: Draw) -> None:
        """Report simulated signals for a draw, possibly one of another run, and advance the sampler."""
        self.updates += 1
        self.sampler.feedback(draw, self.signals(draw.slots.shape[1]))
        if Signal.EVERY_GRADIENT_NORM in self.sampler.needs:
            self.sampler.observe_all(self._numbers(len(self.sampler)))
        self.sampler.advance(self.updates)

    def advance(self) -> None:
        """Advance the sampler by one update; draws and reports nothing."""
        self.updates += 1
        self.sampler.advance(self.updates)

    def train(self, insertions: int, updates_each: int = 1) -> None:
        """Insert transitions one by one, with `updates_each` updates after each, as in a training run."""
        for _ in range(insertions):
            self.insert()
            for _ in range(updates_each):
                self.update()

    def signals(self, batch: int) -> Signals:
        """Simulated TD errors and gradient norms of `batch` drawn slots; the norms span five orders of magnitude."""
        numbers = self._numbers(batch)
        return Signals(td_error=numbers.sqrt(), gradient_norm={"actor": numbers, "critic": 3 * numbers})

    def _numbers(self, count: int) -> Float[Tensor, "P count"]:
        generators = [torch.Generator().manual_seed(1_000_003 * seed + self.updates) for seed in self.seeds]
        rows = [torch.rand(count, generator=generator, dtype=torch.float64) for generator in generators]
        return (12 * torch.stack(rows) - 2).exp()
