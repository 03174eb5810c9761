"""Samplers driven through a random but repeatable life: insertions, draws, feedback, forgetting."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import BackendName, Draw, Signal, Signals


@dataclass(frozen=True)
class Case:
    """One sampler in one setting."""

    config: Any
    members: int = 1
    capacity: int = 64
    backend: BackendName = "numba"

    def seeds(self) -> tuple[int, ...]:
        """One seed a member."""
        return tuple(range(1, self.members + 1))


class Memory(NamedTuple):
    """A life at one moment."""

    state: dict[str, Tensor]
    draws: int
    updates: int


class Life:
    """A sampler with its random numbers and a made-up learner.

    The signal of a draw depends on the member's seed, the update and the position in the batch, and on nothing else, so
    two lives with the same seeds see the same signals.
    """

    def __init__(self, case: Case, seeds: Sequence[int] | None = None, total_updates: int = 1000):
        self.seeds = case.seeds() if seeds is None else tuple(seeds)
        self.sampler = Sampler(
            [case.config] * len(self.seeds), capacity=case.capacity, total_updates=total_updates, backend=case.backend
        )
        self.streams = Streams(self.seeds, self.sampler.backend)
        self.draws = self.sampler.backend.counter()
        self.updates = 0

    def save(self) -> Memory:
        """All that the rest of this life depends on."""
        state = {name: value.clone() for name, value in self.sampler.state_dict().items()}
        return Memory(state, int(self.draws), self.updates)

    def load(self, memory: Memory) -> None:
        """Go on from there."""
        self.sampler.load_state_dict(memory.state)
        self.draws = self.sampler.backend.counter() + memory.draws
        self.updates = memory.updates

    def insert(self, count: int = 1) -> Any:
        """Write `count` transitions, one at a time; the slots of the last."""
        slots = None
        for _ in range(count):
            slots = self.sampler.place(self.streams.uniform(Stream.PLACE, self.sampler.distribution.clock, 2))
        return slots

    def draw(self, batch: int) -> Draw:
        """Draw a batch and move the clock."""
        draw = self.sampler.draw(self.streams.uniform(Stream.DRAW, self.draws, batch))
        self.draws += 1
        return draw

    def update(self, batch: int = 8) -> Draw:
        """Draw, report made-up signals, advance."""
        draw = self.draw(batch)
        self.learn(draw)
        return draw

    def learn(self, draw: Draw) -> None:
        """Report made-up signals of a draw, this life's or another's, and advance."""
        self.updates += 1
        self.sampler.feedback(draw, self.signals(draw.slots.shape[1]))
        if Signal.EVERY_GRADIENT_NORM in self.sampler.needs:
            self.sampler.observe_all(self._numbers(len(self.sampler)))
        self.sampler.advance(self.updates)

    def advance(self) -> None:
        """End an update that reported nothing."""
        self.updates += 1
        self.sampler.advance(self.updates)

    def live(self, insertions: int, updates_each: int = 1) -> None:
        """Some insertions with updates after each, as a training run has them."""
        for _ in range(insertions):
            self.insert()
            for _ in range(updates_each):
                self.update()

    def signals(self, batch: int) -> Signals:
        """Made-up signals of very different sizes, for every kind of rule."""
        numbers = self._numbers(batch)
        return Signals(td_error=numbers.sqrt(), gradient_norm={"actor": numbers, "critic": 3 * numbers})

    def _numbers(self, count: int) -> Float[Tensor, "P count"]:
        generators = [torch.Generator().manual_seed(1_000_003 * seed + self.updates) for seed in self.seeds]
        rows = [torch.rand(count, generator=generator, dtype=torch.float64) for generator in generators]
        return (12 * torch.stack(rows) - 2).exp()
