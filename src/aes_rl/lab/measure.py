"""How much gradient variance a sampler removes at one moment of training: the yardstick of S5 on a real buffer.

Parameters, buffer and random streams of the run stay as they are; the gradients that an update left are overwritten.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl import checks
from aes_rl.agents import AbstractAgent
from aes_rl.errors import UserError
from aes_rl.lab.variance import captured_fraction, cost, oracle_cost, uniform_cost
from aes_rl.replay import Replay
from aes_rl.types import Signals

Array = np.ndarray[Any, Any]
Metric = Literal["euclidean", "adam"]
_CHUNK = 1024
"""Slots whose gradients are computed at a time."""
_BOOTSTRAPS = 200


@dataclass(frozen=True)
class Reading:
    """One member at one moment. Fractions are of the variance that could be removed; nan where there is none."""

    captured_fraction: float
    captured_low: float
    captured_high: float
    """95 % bootstrap interval of the captured fraction; the fraction itself where every slot was looked at."""
    ceiling: float
    """The captured fraction of the best distribution with the sampler's floor κ."""
    oracle_ratio: float
    """f(p*)/f(u): what the oracle leaves of uniform's cost."""
    effective_batch_size: float
    """The uniform batch that is as exact as one of this sampler's, both weighted by 1/(n·p)."""
    variance: float
    """Of a batch's mean gradient, drawn by this sampler and weighted by 1/(n·p): the trace of its covariance."""
    smallest_unbiased_weight: float
    largest_unbiased_weight: float
    """Range of 1/(n·p) over the slots, whatever weights the sampler itself gives."""
    by_network: dict[str, float]
    """The captured fraction of every network's own gradient."""
    median_feedback_age: float = math.nan
    """Updates since the last report on a slot, among slots reported on; nan where the replay does not remember."""
    never_reported: float = math.nan
    """Share of the slots that no update has reported on since they were written; nan likewise."""


@dataclass(frozen=True)
class Norms:
    """Expected squared gradient norms d(i) of some slots, and the mean gradient's."""

    by_network: dict[str, Float[Tensor, "P m"]]
    of_mean: Float[Tensor, "P"]
    """‖ḡ‖² over these slots, all networks together."""

    @cached_property
    def total(self) -> Float[Tensor, "P m"]:
        """All networks together."""
        return torch.stack(list(self.by_network.values())).sum(dim=0)


def measure(
    agent: AbstractAgent,
    replay: Replay,
    batch_size: int,
    slots: int | None = None,
    noise_draws: int = 4,
    metric: Metric = "euclidean",
    seed: int = 0,
) -> list[Reading]:
    """A reading of every member, from all live slots or from a uniform subsample of `slots` of them."""
    checks.count("noise_draws", noise_draws)
    if slots is not None:
        checks.count("slots", slots)
    live = len(replay)
    if live == 0:
        raise UserError("the replay is empty; there is no gradient to measure")
    generator = np.random.default_rng(seed)
    is_exact = slots is None or slots >= live
    chosen = np.arange(live) if is_exact else np.sort(generator.choice(live, slots, replace=False))
    norms = expected_norms(agent, replay, chosen, noise_draws, metric, seed)
    probabilities = replay.sampler.probabilities().cpu()[:, chosen]
    floors = replay.sampler.distribution.floor.flatten().tolist()
    resampled = None if is_exact else _resampled(len(chosen), generator)
    readings = [
        _reading(norms, probabilities, member, floors[member], live, batch_size, resampled)
        for member in range(len(floors))
    ]
    if replay.ages is None:
        return readings
    slots_there = torch.from_numpy(chosen).to(replay.ages.heard.device)
    ages = replay.ages.ages(slots_there, replay.draws).cpu()
    return [_with_staleness(reading, own) for reading, own in zip(readings, ages, strict=True)]


def expected_norms(
    agent: AbstractAgent, replay: Replay, slots: Array, noise_draws: int, metric: Metric = "euclidean", seed: int = 0
) -> Norms:
    """E d(i) over the update's noise, by the mean of some draws of it, of the same slots of every member."""
    members = len(replay.streams.seeds)
    networks, scales = agent.trained(), agent.metric()
    found: dict[str, Tensor] = {}
    mean = {
        name: [torch.zeros_like(p, dtype=torch.float64) for p in net.parameters()] for name, net in networks.items()
    }
    try:
        for name, network in networks.items():
            network.metric = scales[name] if metric == "adam" else None
        for look in looks(agent, replay, slots, noise_draws, seed):
            for name, norm in look.signals.gradient_norm.items():
                if name not in found:
                    found[name] = torch.zeros(members, len(slots), dtype=torch.float64)
                found[name][:, look.part] += norm.double().cpu() / look.draws
            for name, network in networks.items():
                for total, parameter in zip(mean[name], network.parameters(), strict=True):
                    assert parameter.grad is not None
                    total += parameter.grad.double() * (look.width / len(slots) / look.draws)
    finally:
        for network in networks.values():
            network.metric = None
    of_mean = torch.zeros(members, dtype=torch.float64)
    for name, totals in mean.items():
        for total, scale in zip(totals, _flat(scales[name]), strict=True):
            squares = total.square() * (scale if metric == "adam" else 1.0)
            of_mean += squares.reshape(members, -1).sum(dim=1).cpu()
    return Norms(found, of_mean)


class Look(NamedTuple):
    """The gradients of some slots under one draw of the update's noise. Those of the networks are left in them."""

    part: slice
    """Which of the slots asked for."""
    draw: int
    draws: int
    """The draw of the noise, from 0, and how many there are."""
    width: int
    """By how much the networks' gradients are averages: slots here, and padding that adds nothing."""
    signals: Signals


def looks(agent: AbstractAgent, replay: Replay, slots: Array, noise_draws: int, seed: int) -> Iterator[Look]:
    """The same slots of every member in chunks, each under some draws of the update's noise."""
    device, dtype = replay.storage.rows.device, replay.storage.rows.dtype
    members = len(replay.streams.seeds)
    generator = torch.Generator().manual_seed(seed)
    draws = noise_draws if agent.noise_size(1) else 1
    for start in range(0, len(slots), _CHUNK):
        own = slots[start : start + _CHUNK]
        count = len(own)
        width = _CHUNK if device.type == "cuda" else count  # a GPU compiles anew for every other size
        padded = torch.from_numpy(np.resize(own, width)).to(device).expand(members, -1).contiguous()
        batch = replay.storage.read(padded if replay.sampler.engine.name != "numba" else padded.numpy())
        weights = torch.zeros(padded.shape, dtype=dtype, device=device)
        weights[:, :count] = 1
        for draw in range(draws):
            noise = torch.randn(members, agent.noise_size(width), generator=generator, dtype=dtype)
            signals = agent.differentiate(batch, weights, noise.to(device), slice(None)).signals
            assert signals.td_error is not None
            norms = {name: norm[:, :count] for name, norm in signals.gradient_norm.items()}
            part = slice(start, start + count)
            yield Look(part, draw, draws, width, Signals(signals.td_error[:, :count], norms))


def _reading(
    norms: Norms,
    probabilities: Float[Tensor, "P m"],
    member: int,
    floor: float,
    live: int,
    batch_size: int,
    resampled: Float[Tensor, "R m"] | None,
) -> Reading:
    total, own = norms.total[member], probabilities[member]
    # A uniform subsample of m slots estimates every sum over slots by live/m times its own.
    factor = live / len(total)
    per_slot = cost(total, own) * factor / live**2
    uniform_per_slot, mean = uniform_cost(total) / len(total) ** 2, norms.of_mean[member]
    best = (1 - floor) * total.sqrt() / total.sqrt().sum() + floor / len(total)
    captured = _captured(total, own, factor)
    low = high = captured
    if resampled is not None and not math.isnan(captured):
        # All three costs are functions of sums over slots, and a resample is a count for each of them.
        terms = torch.stack([total, total / (own * factor), total.sqrt()], dim=1)
        norm, share, root = (resampled @ terms).unbind(dim=1)
        uniform = len(total) * norm
        low, high = np.nanquantile((uniform - share) / (uniform - root.square()), (0.025, 0.975)).tolist()
    weights = 1 / (live * own)
    return Reading(
        captured_fraction=captured,
        captured_low=low,
        captured_high=high,
        ceiling=captured_fraction(total, best).item(),
        oracle_ratio=(oracle_cost(total) / uniform_cost(total)).item(),
        effective_batch_size=(batch_size * (uniform_per_slot - mean) / (per_slot - mean)).item(),
        variance=((per_slot - mean) / batch_size).item(),
        smallest_unbiased_weight=weights.min().item(),
        largest_unbiased_weight=weights.max().item(),
        by_network={name: _captured(norm[member], own, factor) for name, norm in norms.by_network.items()},
    )


def _resampled(slots: int, generator: np.random.Generator) -> Float[Tensor, "R m"]:
    """How often every slot is in each bootstrap resample; the same for all members."""
    counts = generator.multinomial(slots, np.full(slots, 1 / slots), size=_BOOTSTRAPS)
    return torch.from_numpy(counts).double()


def _with_staleness(reading: Reading, ages: Float[Tensor, "m"]) -> Reading:
    known = ages[ages.isfinite()]
    median = known.median().item() if len(known) else math.nan
    return replace(reading, median_feedback_age=median, never_reported=1 - len(known) / len(ages))


def _captured(norms: Float[Tensor, "m"], probabilities: Float[Tensor, "m"], factor: float) -> float:
    """Captured fraction with the subsample's probabilities scaled to what they would be over these slots alone."""
    return captured_fraction(norms, probabilities * factor).item()


def _flat(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [part for pair in pairs for part in pair]
