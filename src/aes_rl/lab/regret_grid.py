"""The measurements of `aes-rl lab regret`: which sampler meets which stream of norms, for how many updates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from aes_rl.lab.regret import (
    STREAMS,
    Norms,
    Regret,
    dynamic,
    full_information,
    naive,
    partial_information,
    regret_of,
    wandering,
)
from aes_rl.samplers.adaptive import Adaptive
from aes_rl.samplers.rule import SamplerConfig

STATIC_SAMPLERS = ("full information", "partial, ν = G²", "partial, ν = |B|G²/κ")
DYNAMIC_SAMPLERS = ("never forgets", "restarts (M² < |B|)", "forgets 30 % (M² < |B|)")
FLOOR, NU = 0.2, 10.0
"""κ and ν of the dynamic form; norms are at most 1, and each draw adds about |B| times the norm to a slot's sum."""
_UPDATES_PER_EPOCH = (4, 16)
"""m of Algorithm 1, below |B|/|Ψ| as the paper requires."""


class Job(NamedTuple):
    """One measurement."""

    part: str
    """The figure that it belongs to: static, dynamic, samples or parameters."""
    stream: str
    label: str
    """The sampler, or the parameter that varies."""
    position: float
    """On the figure's horizontal axis."""
    config: SamplerConfig
    """The sampler's configuration."""
    norms: Norms
    slots: int
    updates: int
    batch_size: int = 1
    overwrite_every: int | None = None

    def measured(self, runs: int) -> Regret:
        """The regret over some runs."""
        return regret_of(self.config, self.norms, self.slots, self.updates, self.batch_size, runs, self.overwrite_every)


def jobs(slots: int, updates: Sequence[int]) -> list[Job]:
    """All measurements for a buffer of |B| slots and runs of these numbers of updates T."""
    return [
        *_static(slots, updates),
        *_dynamic(slots, updates),
        *_samples(slots, updates),
        *_parameters(slots, updates),
    ]


def _static(slots: int, lengths: Sequence[int]) -> Iterator[Job]:
    """Corollaries 1 and 2: all streams, and a separate run per T, since κ depends on T."""
    for name, stream in STREAMS.items():
        for updates in lengths:
            samplers: tuple[SamplerConfig, ...] = (
                full_information(),
                partial_information(slots, updates, is_implied=False),
                partial_information(slots, updates, is_implied=True),
            )
            for label, config in zip(STATIC_SAMPLERS, samplers, strict=True):
                yield Job("static", name, label, updates, config, stream(slots, updates), slots, updates)


def _dynamic(slots: int, lengths: Sequence[int]) -> Iterator[Job]:
    """Theorem 1: norms that change at the same pace in runs of all lengths."""
    pace = min(lengths)
    base = dynamic(slots, FLOOR, NU)
    samplers = (replace(base, retention=1.0), base, replace(base, retention=0.7))
    for updates in lengths:
        norms = wandering(slots, updates, swings=updates / pace)
        for label, config in zip(DYNAMIC_SAMPLERS, samplers, strict=True):
            yield Job("dynamic", "wandering", label, updates, config, norms, slots, updates)


def _samples(slots: int, lengths: Sequence[int]) -> Iterator[Job]:
    """Equal numbers of trajectories: Algorithm 2 makes one update per trajectory; Algorithm 1 makes m and restarts."""
    for samples in lengths[:-1]:
        norms = wandering(slots, samples, swings=samples / slots / 8)
        for label, retention in (("dynamic, restarts", 0.0), ("dynamic, ϱ = 0.7", 0.7)):
            sampler = dynamic(slots, FLOOR, NU, retention=retention)
            yield Job("samples", "wandering", label, samples, sampler, norms, slots, samples, 1, 1)
        for updates in _UPDATES_PER_EPOCH:
            total = samples * updates
            norms = wandering(slots, total, swings=samples / slots / 8)
            label, config = f"naive, m = {updates}", naive(FLOOR, NU, updates)
            yield Job("samples", "wandering", label, samples, config, norms, slots, total, 1, updates)


def _parameters(slots: int, lengths: Sequence[int]) -> Iterator[Job]:
    """AES's parameters, the buffer size and the batch size, varied one at a time."""
    updates = sorted(lengths)[len(lengths) // 2]
    root = math.isqrt(slots)
    base = dynamic(slots, FLOOR, NU, forget_every=slots * 2, retention=0.7)

    def job(label: str, position: float, config: Adaptive, slots: int = slots, batch_size: int = 1) -> Job:
        norms = wandering(slots, updates, swings=4)
        return Job("parameters", "wandering", label, position, config, norms, slots, updates, batch_size)

    for floor in (0.01, 0.05, 0.1, 0.2, 0.5, 0.9):
        yield job("κ", floor, replace(base, floor=floor))
    for nu in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0):
        yield job("ν", nu, replace(base, nu=nu))
    for every in (root, slots // 2, slots, 2 * slots, 8 * slots):
        yield job("M", every, replace(base, forget_every=every))
    for retention in (0.0, 0.3, 0.7, 0.9, 1.0):
        yield job("ϱ", retention, replace(base, retention=retention))
    for count in (8, 32, 128, 512):
        yield job("|B|", count, base, slots=count)
    for batch_size in (1, 4, 16, 64):
        yield job("|Ψ|", batch_size, base, batch_size=batch_size)
