"""How much gradient variance a sampler removes at one moment of training, from the agent's gradients on its buffer.

Parameters, buffer and random streams of the run do not change; the gradients left by the last update are overwritten.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl import checks
from aes_rl.agents import AbstractAgent
from aes_rl.agents.agent import Metric
from aes_rl.errors import UserError
from aes_rl.lab.variance import best_with_floor, captured_fraction, cost, fraction_of_costs, oracle_cost, uniform_cost
from aes_rl.replay import Replay
from aes_rl.samplers.rule import candidates_per_draw
from aes_rl.types import CRITIC, Signals

_CHUNK = 1024
"""Slots whose gradients are computed at a time."""
_RESAMPLES = 200
"""Of the bootstrap."""


@dataclass(frozen=True)
class Reading:
    """One member at one moment. Fractions are of the removable variance; nan where there is none.

    With separate draws, costs are sums over the draws, and the best distribution is the best pair.
    """

    captured_fraction: float
    captured_low: float
    captured_high: float
    """95 % bootstrap interval of the captured fraction; the fraction itself where all slots were measured."""
    ceiling: float
    """The captured fraction of the best distribution with the sampler's floor κ."""
    oracle_ratio: float
    """f(p*)/f(u): the best distribution's cost relative to uniform sampling's."""
    effective_batch_size: float
    """Size of the uniform batch with the same variance as one batch of this sampler, both weighted by 1/(n·p)."""
    variance: float
    """Trace of the covariance of a batch's mean gradient, drawn by this sampler and weighted by 1/(n·p)."""
    smallest_unbiased_weight: float
    largest_unbiased_weight: float
    """Range of 1/(n·p) over the slots, whatever weights the sampler itself gives."""
    by_network: dict[str, float]
    """The captured fraction of each network's own gradient, under the draw that it is computed on."""
    median_feedback_age: float = math.nan
    """Median number of updates since the last feedback on a slot, over slots that had any; nan if not remembered."""
    never_reported: float = math.nan
    """Fraction of the slots without feedback since they were written; nan if not remembered."""


@dataclass(frozen=True)
class Norms:
    """Expected squared gradient norms d(i) of some slots, and the squared norm of their mean gradient."""

    by_network: dict[str, Float[Tensor, "P m"]]
    of_mean: Float[Tensor, "P"]
    """‖ḡ‖² over these slots, summed over networks."""

    @cached_property
    def total(self) -> Float[Tensor, "P m"]:
        """d(i) summed over networks."""
        return torch.stack(list(self.by_network.values())).sum(dim=0)


def measure(
    agent: AbstractAgent,
    replay: Replay,
    batch_size: int,
    slots: int | None = None,
    noise_samples: int = 4,
    metric: Metric = "euclidean",
    seed: int = 0,
) -> list[Reading]:
    """A reading per member, from all live slots or from a uniform subsample of `slots` of them."""
    checks.count("noise_samples", noise_samples)
    if slots is not None:
        checks.count("slots", slots)
    live = len(replay)
    if live == 0:
        raise UserError("the replay is empty; there is no gradient to measure")
    for config in replay.sampler.configs:
        if candidates_per_draw(config) > 1:
            raise UserError(f"{config} has no fixed probability per slot to measure; measure another sampler")
    generator = np.random.default_rng(seed)
    is_exact = slots is None or slots >= live
    chosen = np.arange(live) if is_exact else np.sort(generator.choice(live, slots, replace=False))
    norms = expected_norms(agent, replay, chosen, noise_samples, metric, seed)
    probabilities = replay.sampler.probabilities().cpu()[:, chosen]
    floors = replay.sampler.distribution.floor.flatten().tolist()
    resample_counts = None if is_exact else _resample_counts(len(chosen), generator)
    members = range(len(replay.streams.seeds))
    actors = replay.network_draws.actor_members if replay.network_draws else members
    readings = [
        _reading(
            _shares(norms, member, probabilities[member], probabilities[actor], actor != member),
            norms.of_mean[member],
            floors[member],
            live,
            batch_size,
            resample_counts,
        )
        for member, actor in zip(members, actors, strict=True)
    ]
    if replay.ages is None:
        return readings
    chosen_on_device = torch.from_numpy(chosen).to(replay.storage.rows.device)
    ages = replay.ages.ages(chosen_on_device, replay.draws).cpu()
    # Of a member with separate draws, the ages are those of its critics' draw.
    return [_with_feedback_age(reading, own) for reading, own in zip(readings, ages, strict=False)]


def expected_norms(
    agent: AbstractAgent,
    replay: Replay,
    slots: NDArray[np.int64],
    noise_samples: int,
    metric: Metric = "euclidean",
    seed: int = 0,
) -> Norms:
    """E d(i) over the update's noise, estimated by a mean over noise samples, for the same slots of every member."""
    members = len(replay.streams.seeds)
    networks, scales = agent.trained(), agent.metric()
    norms: dict[str, Tensor] = {}
    mean_gradient = {
        name: [torch.zeros_like(p, dtype=torch.float64) for p in net.parameters()] for name, net in networks.items()
    }
    own_metric, agent.norm_metric = agent.norm_metric, metric
    try:
        for chunk in signals_by_chunk(agent, replay, slots, noise_samples, seed):
            for name, norm in chunk.signals.gradient_norm.items():
                if name not in norms:
                    norms[name] = torch.zeros(members, len(slots), dtype=torch.float64)
                norms[name][:, chunk.part] += norm.double().cpu() / chunk.noise_samples
            for name, network in networks.items():
                for total, parameter in zip(mean_gradient[name], network.parameters(), strict=True):
                    assert parameter.grad is not None
                    total += parameter.grad.double() * (chunk.width / len(slots) / chunk.noise_samples)
    finally:
        agent.norm_metric = own_metric
        agent.prepare_norms()
    of_mean = torch.zeros(members, dtype=torch.float64)
    for name, totals in mean_gradient.items():
        for total, scale in zip(totals, _flat(scales[name]), strict=True):
            squares = total.square() * (scale if metric == "adam" else 1.0)
            of_mean += squares.reshape(members, -1).sum(dim=1).cpu()
    return Norms(norms, of_mean)


class ChunkSignals(NamedTuple):
    """Signals of a chunk of slots under one noise sample; the chunk's mean gradient is in the networks' `grad`."""

    part: slice
    """Position of the chunk among the requested slots."""
    noise_sample: int
    """From 0."""
    noise_samples: int
    """How many there are: 1 for an agent whose update has no noise."""
    width: int
    """The number that the networks' gradients are divided by: slots of the chunk, and padding of weight 0."""
    signals: Signals


def signals_by_chunk(
    agent: AbstractAgent, replay: Replay, slots: NDArray[np.int64], noise_samples: int, seed: int
) -> Iterator[ChunkSignals]:
    """Differentiate the losses at the same slots of every member, chunk by chunk, under several noise samples."""
    device, dtype = replay.storage.rows.device, replay.storage.rows.dtype
    members = len(replay.streams.seeds)
    generator = torch.Generator().manual_seed(seed)
    samples = noise_samples if agent.noise_size(1) else 1
    for start in range(0, len(slots), _CHUNK):
        own = slots[start : start + _CHUNK]
        count = len(own)
        width = _CHUNK if device.type == "cuda" else count  # every further size is compiled again on a GPU
        padded = torch.from_numpy(np.resize(own, width)).to(device).expand(members, -1).contiguous()
        batch = replay.read(padded)
        weights = torch.zeros(padded.shape, dtype=dtype, device=device)
        weights[:, :count] = 1
        for sample in range(samples):
            noise = torch.randn(members, agent.noise_size(width), generator=generator, dtype=dtype)
            signals = agent.differentiate(batch, weights, noise.to(device), slice(None)).signals
            assert signals.td_error is not None
            norms = {name: norm[:, :count] for name, norm in signals.gradient_norm.items()}
            part = slice(start, start + count)
            yield ChunkSignals(part, sample, samples, width, Signals(signals.td_error[:, :count], norms))


class _Share(NamedTuple):
    """What one draw of a member serves: the norms of its networks, and the probabilities it is made with."""

    by_network: dict[str, Float[Tensor, "m"]]
    probabilities: Float[Tensor, "m"]

    @property
    def total(self) -> Float[Tensor, "m"]:
        """d(i) summed over the networks."""
        return torch.stack(list(self.by_network.values())).sum(dim=0)


def _shares(
    norms: Norms, member: int, own: Float[Tensor, "m"], of_actor: Float[Tensor, "m"], are_separate: bool
) -> list[_Share]:
    """One share for all networks or, with separate draws, one for the critics and one for the others."""
    by_network = {name: norm[member] for name, norm in norms.by_network.items()}
    if not are_separate:
        return [_Share(by_network, own)]
    others = {name: norm for name, norm in by_network.items() if name != CRITIC}
    return [_Share({CRITIC: by_network[CRITIC]}, own), _Share(others, of_actor)]


def _costs(total: Float[Tensor, "m"], own: Float[Tensor, "m"], floor: float) -> Float[Tensor, "4"]:
    """f(p) of uniform sampling, of the sampler, of the best distribution, and of the best with the sampler's floor."""
    best = cost(total, best_with_floor(total, floor)) if floor else oracle_cost(total)
    return torch.stack([uniform_cost(total), cost(total, own), oracle_cost(total), best])


def _reading(
    shares: list[_Share],
    of_mean: Float[Tensor, ""],
    floor: float,
    live: int,
    batch_size: int,
    resample_counts: Float[Tensor, "R m"] | None,
) -> Reading:
    # A uniform subsample of m slots estimates a sum over all slots by live/m times its own sum.
    slots = len(shares[0].probabilities)
    factor = live / slots
    totals = [(share.total, (share.probabilities * factor).double()) for share in shares]
    uniform, own_cost, oracle, best = torch.stack([_costs(total, own, floor) for total, own in totals]).sum(dim=0)
    captured = fraction_of_costs(uniform, own_cost, oracle, slots).item()
    low = high = captured
    if resample_counts is not None and not math.isnan(captured):
        # All three costs are functions of sums over slots, so a resample is a matrix product with its counts.
        resampled = torch.zeros(3, len(resample_counts), dtype=torch.float64)
        for total, own in totals:
            terms = torch.stack([total, total / own, total.sqrt()], dim=1)
            norm_sum, cost_sum, root_sum = (resample_counts @ terms).unbind(dim=1)
            resampled += torch.stack([slots * norm_sum, cost_sum, root_sum.square()])
        fractions = (resampled[0] - resampled[1]) / (resampled[0] - resampled[2])
        low, high = np.nanquantile(fractions, (0.025, 0.975)).tolist()
    per_slot, uniform_per_slot = own_cost / slots**2, uniform / slots**2
    weights = 1 / (live * torch.stack([share.probabilities for share in shares]))
    return Reading(
        captured_fraction=captured,
        captured_low=low,
        captured_high=high,
        ceiling=fraction_of_costs(uniform, best, oracle, slots).item(),
        oracle_ratio=(oracle / uniform).item(),
        effective_batch_size=(batch_size * (uniform_per_slot - of_mean) / (per_slot - of_mean)).item(),
        variance=((per_slot - of_mean) / batch_size).item(),
        smallest_unbiased_weight=weights.min().item(),
        largest_unbiased_weight=weights.max().item(),
        by_network={
            name: captured_fraction(norm, share.probabilities * factor).item()
            for share in shares
            for name, norm in share.by_network.items()
        },
    )


def _resample_counts(slots: int, generator: np.random.Generator) -> Float[Tensor, "R m"]:
    """How often each slot occurs in each bootstrap resample; the same for all members."""
    counts = generator.multinomial(slots, np.full(slots, 1 / slots), size=_RESAMPLES)
    return torch.from_numpy(counts).double()


def _with_feedback_age(reading: Reading, ages: Float[Tensor, "m"]) -> Reading:
    known = ages[ages.isfinite()]
    median = known.median().item() if len(known) else math.nan
    return replace(reading, median_feedback_age=median, never_reported=1 - len(known) / len(ages))


def _flat(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [part for pair in pairs for part in pair]
