"""Random numbers as a pure function of (member seed, stream, counter, element).

No state is kept: the counter is a clock that the caller holds, so a checkpoint needs no generator, and a member sees
the same integers alone or among others, on the CPU and on a GPU.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.types import Array, Counter, as_tensor

GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB
"""Splitmix64's increment and multipliers."""
_MASK = (1 << 64) - 1


class Stream(IntEnum):
    """Independent sequences of one member. Append only: the numbers are part of every recorded run."""

    DRAW = 0
    PLACE = 1
    PARAMETERS = 2
    """Initial network parameters; the counter is the layer."""
    WARM_UP = 3
    """Uniform actions before the first update; the counter is the environment step."""
    EXPLORE = 4
    """Action noise while training; the counter is the environment step."""
    UPDATE = 5
    """Action noise inside an update; the counter is the update."""
    EPISODE = 6
    """Seeds of training environments; the counter is the environment step."""
    EVALUATION = 7
    """Seeds of test episodes; the counter is the evaluation."""
    CHOICE = 8
    """Which candidates are kept; the counter is the draw."""
    CANDIDATES = 9
    """Action noise when TD errors of candidates are computed; the counter is the draw."""


class RandomSource(Protocol):
    """The part of a backend that makes random numbers."""

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        ...

    def counter(self) -> Counter:
        """A clock at zero."""
        ...

    def view(self, tensor: Tensor) -> Array:
        """The same memory in the form that the backend's loops take."""
        ...

    def uniform(self, keys: Array, counter: Counter, count: int) -> Array:
        """[P, count] float64 numbers from one key per member."""
        ...


class Streams:
    """The random numbers of P members, one seed each."""

    def __init__(self, seeds: Sequence[int], source: RandomSource):
        self.seeds = tuple(int(seed) for seed in seeds)
        self._source = source
        keys = [[as_int64(_mix(_mix(seed) ^ stream)) for seed in self.seeds] for stream in Stream]
        self._keys = [source.view(torch.tensor(of_stream, device=source.device)) for of_stream in keys]

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self._source.device

    def counter(self, value: int) -> Counter:
        """A clock at some value, in the backend's form."""
        return self._source.counter() + value

    def uniform(self, stream: Stream, counter: Counter, count: int) -> Array:
        """[P, count] float64 numbers strictly between 0 and 1, symmetric about a half, with 52 random bits.

        Float64 because float32 has only about 16 values per slot at a million slots.
        """
        return self._source.uniform(self._keys[stream], counter, count)

    def normal(self, stream: Stream, counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
        """Standard normal numbers, float32, by inverting the distribution function."""
        numbers: Tensor = torch.special.ndtri(as_tensor(self.uniform(stream, counter, count)))
        return numbers.float()

    def integers(self, stream: Stream, counter: Counter, count: int, high: Counter) -> Int[Tensor, "P {count}"]:
        """Whole numbers from 0 to high − 1, each with probability 1/high to within 2⁻⁵²."""
        return scale_to_integers(as_tensor(self.uniform(stream, counter, count)), high)


def scale_to_integers(uniforms: Float[Tensor, "..."], high: Counter) -> Int[Tensor, "..."]:
    """⌊u · high⌋, kept below `high` where the product rounds up to it."""
    return (uniforms * high).long().clamp(max=high - 1)


def as_int64(x: int) -> int:
    """The signed number with the same 64 bits."""
    return x - (1 << 64) if x >= 1 << 63 else x


def _mix(x: int) -> int:
    x = (x + GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * FIRST) & _MASK
    x = ((x ^ (x >> 27)) * SECOND) & _MASK
    return x ^ (x >> 31)
