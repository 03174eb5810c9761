"""What happens to the learner's signals before a rule hears of them: checks, and where they count."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.backends import AbstractBackend, fused
from aes_rl.backends.distribution import AbstractDistribution
from aes_rl.errors import UserError
from aes_rl.types import Array, Draw, Report, Signal, Signals

Networks = tuple[str, ...] | None
"""Names of the networks whose gradients form the signal; None means all of them."""


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
    signals: Signals,
    draw: Draw,
    distribution: AbstractDistribution[Array],
    backend: AbstractBackend[Array],
    fault: Bool[Tensor, "P"],
) -> tuple[Report, bool]:
    """The report of a draw, and whether all of it counts.

    A value counts where its slot still holds what was drawn, all values are finite and no gradient norm is negative. A
    backend that sees values at once raises where one is not; the others note the members concerned in `fault`.
    """
    named = list(_named(signals))
    wrong, is_current, is_whole = backend.screen(
        draw, [(values, _lowest(name)) for name, values in named], distribution, fault
    )
    if wrong is not None:
        name, values = named[wrong]
        raise UserError(name_the_fault(name, values, _lowest(name)))
    return Report(draw, signals, is_current), is_whole


def part_of(report: Report, members: slice) -> Report:
    """The part of a report that concerns some members."""
    return Report(report.draw.of_members(members), report.signals.of_members(members), report.is_current_view[members])


def name_the_fault(name: str, values: Float[Tensor, "p B"], lowest: float) -> str:
    """Which value is not finite, or too low."""
    wrong = ~(values.isfinite() & (values >= lowest))
    member, position = wrong.nonzero()[0].tolist()
    limit = "finite" if lowest == -math.inf else "finite and at least 0"
    return (
        f"{name} of member {member} is {values[member, position].item()} at position {position}; it must be {limit}. "
        "Nothing was learned from this batch; look at the losses: a diverged critic is the usual cause"
    )


def _lowest(name: str) -> float:
    return -math.inf if name == "td_error" else 0.0


def _named(signals: Signals) -> Iterator[tuple[str, Float[Tensor, "p B"]]]:
    if signals.td_error is not None:
        yield "td_error", signals.td_error
    for network, norm in signals.gradient_norm.items():
        yield f"gradient_norm[{network!r}]", norm


def check_networks(networks: Networks) -> None:
    """Raise unless `networks` names some networks or is None."""
    if networks is not None and (not isinstance(networks, tuple) or not networks):
        raise UserError(f"networks is {networks!r}; give a tuple of names such as ('actor',), or None for all")


def squared_norm(signals: Signals, networks: Networks) -> Float[Tensor, "p B"]:
    """d(i): the squared norms summed over the chosen networks."""
    reported = signals.gradient_norm
    for name in networks or ():
        if name not in reported:
            raise UserError(f"no gradient norm of network {name!r} was reported; there are {', '.join(reported)}")
    return _total(*(reported[name] for name in networks or reported))


@fused
def _total(*norms: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
    total, *others = norms
    for other in others:
        total = total.double() + other  # two large float32 numbers may not fit one
    return total
