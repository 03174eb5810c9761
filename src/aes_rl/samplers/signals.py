"""What happens to the learner's report before a rule sees it: checks, slices of members, masks."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.engines import AbstractEngine, fused
from aes_rl.errors import UserError
from aes_rl.samplers.distribution import AbstractDistribution
from aes_rl.types import Counter, Draw, Signal, Signals


def check(signals: Signals, needs: Signal, draw: Draw) -> None:
    """Raise unless everything needed was reported, in the shape of the draw."""
    if Signal.TD_ERROR in needs and signals.td_error is None:
        raise UserError("the sampler learns from TD errors and got none; give Signals(td_error=…)")
    if Signal.GRADIENT_NORM in needs and not signals.gradient_norm:
        raise UserError("the sampler learns from gradient norms and got none; give Signals(gradient_norm={…})")
    for name, values in _named(signals):
        if values.shape != draw.slots_view.shape:
            raise UserError(f"{name} is {tuple(values.shape)}; the draw it reports on is {draw.slots_view.shape}")
        if values.dtype not in (torch.float32, torch.float64):
            raise UserError(f"{name} is {values.dtype}; report it as float32 or float64")
        if values.requires_grad:
            raise UserError(f"{name} is part of a gradient computation; detach it before reporting it")


def screened(
    signals: Signals, draw: Draw, distribution: AbstractDistribution, engine: AbstractEngine, fault: Bool[Tensor, "P"]
) -> tuple[Signals, Bool[Tensor, "P B"] | None]:
    """The report with zeros where it may not count, and where it may, or None if everywhere.

    It may where a slot holds what was drawn, all values are finite and no gradient norm is negative. An engine that can
    read at once raises if a value is not; the others note the members concerned in `fault`.
    """
    named = dict(_named(signals))
    if engine.name == "numba":
        for name, values in named.items():
            values_may_count(name, values, engine)
        current = distribution.is_current(draw)
        return signals if current is None else _masked(signals, current), current
    lowest = [_lowest(name) for name in named]
    kept, faulty, masked = _screen(distribution.stamps, draw.slots, draw.clock, fault, list(named.values()), lowest)
    fault.copy_(faulty)
    td_error = None if signals.td_error is None else masked.pop(0)
    return Signals(td_error, dict(zip(signals.gradient_norm, masked, strict=True))), kept


def values_may_count(name: str, values: Float[Tensor, "P B"], engine: AbstractEngine) -> Bool[Tensor, "P B"] | None:
    """Where one signal is sound, or None where the engine has made sure that it is everywhere."""
    verdict = engine.within(values, _lowest(name))
    if isinstance(verdict, Tensor):
        return verdict
    if not verdict:
        raise UserError(_name_the_fault(name, values, _lowest(name)))
    return None


@fused
def _screen(
    stamps: Int[Tensor, "P N"],
    slots: Int[Tensor, "P B"],
    clock: Counter,
    fault: Bool[Tensor, "P"],
    values: list[Float[Tensor, "P B"]],
    lowest: list[float],
) -> tuple[Bool[Tensor, "P B"], Bool[Tensor, "P"], list[Float[Tensor, "P B"]]]:
    sound = torch.ones_like(slots, dtype=torch.bool)
    for value, limit in zip(values, lowest, strict=True):
        sound = sound & value.isfinite() & (value >= limit)
    kept = sound & (stamps.gather(1, slots) <= clock)
    return kept, fault | ~sound.all(dim=1), [torch.where(kept, value, 0) for value in values]


def of_members(signals: Signals, members: slice) -> Signals:
    """The part of a report that concerns some members."""
    td_error = None if signals.td_error is None else signals.td_error[members]
    return Signals(td_error, {name: norm[members] for name, norm in signals.gradient_norm.items()})


def _masked(signals: Signals, kept: Bool[Tensor, "p B"]) -> Signals:
    """The report with zeros in place of the rows that must not count."""
    td_error = None if signals.td_error is None else torch.where(kept, signals.td_error, 0)
    return Signals(td_error, {name: torch.where(kept, norm, 0) for name, norm in signals.gradient_norm.items()})


def _lowest(name: str) -> float:
    return -math.inf if name == "td_error" else 0.0


def _named(signals: Signals) -> Iterator[tuple[str, Float[Tensor, "p B"]]]:
    if signals.td_error is not None:
        yield "td_error", signals.td_error
    for network, norm in signals.gradient_norm.items():
        yield f"gradient_norm[{network!r}]", norm


def _name_the_fault(name: str, values: Float[Tensor, "p B"], lowest: float) -> str:
    wrong = ~(values.isfinite() & (values >= lowest))
    member, position = wrong.nonzero()[0].tolist()
    limit = "finite" if lowest == -math.inf else "finite and at least 0"
    return (
        f"{name} of member {member} is {values[member, position].item()} at position {position}; it must be {limit}. "
        "Nothing was learned from this batch; look at the losses: a diverged critic is the usual cause"
    )
