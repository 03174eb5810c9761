"""Validation of the learner's signals before they reach a rule."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.backends import AbstractBackend
from aes_rl.backends.distribution import AbstractDistribution
from aes_rl.errors import UserError
from aes_rl.types import Array, Draw, Report, Signals, as_tensor

_DTYPES = (torch.float32, torch.float64)


def check(signals: Signals, needs_errors: bool, needs_norms: bool, draw: Draw) -> None:
    """Raise unless every required signal was reported, with the shape of the draw."""
    if needs_errors and signals.td_error is None:
        raise UserError("the sampler needs TD errors, but none were reported; pass Signals(td_error=…)")
    if needs_norms and not signals.gradient_norm:
        raise UserError("the sampler needs gradient norms, but none were reported; pass Signals(gradient_norm={…})")
    check_values(signals, draw.slots_view.shape)


def check_values(signals: Signals, shape: tuple[int, ...]) -> None:
    """Raise unless every reported tensor has the shape of its draw and a type that the rules take."""
    for network, values in _values(signals):
        if values.shape != shape or values.dtype not in _DTYPES or values.requires_grad:
            check_tensor(_name(network), values, shape)


def check_tensor(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless a tensor has the shape of its draw and a type that the rules take."""
    if values.shape != shape:
        raise UserError(f"{name} has shape {tuple(values.shape)}; the shape of its draw is {tuple(shape)}")
    if values.dtype not in _DTYPES:
        raise UserError(f"{name} has dtype {values.dtype}; report it as float32 or float64")
    if values.requires_grad:
        raise UserError(f"{name} requires grad; detach it before reporting it")


def screened(
    signals: Signals,
    draw: Draw,
    distribution: AbstractDistribution[Array],
    backend: AbstractBackend[Array],
    fault: Bool[Tensor, "P"],
    member_names: Sequence[str],
) -> Report:
    """The report of a draw, with the drawn slots that count.

    A drawn slot counts if it still holds the transition that was drawn, all its signals are finite and no gradient norm
    is negative. A backend that reads values on the host raises on an invalid value; the others set `fault` for the
    members that reported one.
    """
    error = None if signals.td_error is None else backend.view(signals.td_error)
    norms = {network: backend.view(values) for network, values in signals.gradient_norm.items()}
    limited = [(values, 0.0) for values in norms.values()]
    if error is not None:
        limited.insert(0, (error, -math.inf))
    wrong, is_current = backend.screen(draw, limited, distribution, fault)
    if wrong is not None:
        values, lowest = limited[wrong]
        network, _ = _values(signals)[wrong]
        raise UserError(invalid_value_message(_name(network), as_tensor(values), lowest, member_names))
    return Report(draw, signals, is_current, norms, error)


def part_of(report: Report, members: slice) -> Report:
    """The part of a report for a slice of members."""
    norms = {network: values[members] for network, values in report.norm_views.items()}
    error = None if report.error_view is None else report.error_view[members]
    draw, signals = report.draw.of_members(members), report.signals.of_members(members)
    return Report(draw, signals, report.is_current_view[members], norms, error)


def invalid_value_message(name: str, values: Float[Tensor, "p B"], lowest: float, member_names: Sequence[str]) -> str:
    """An error message that names the first value that is not finite or too low."""
    wrong = ~(values.isfinite() & (values >= lowest))
    member, position = wrong.nonzero()[0].tolist()
    limit = "finite" if lowest == -math.inf else "finite and at least 0"
    return (
        f"{name} of {member_names[member]} is {values[member, position].item()} at position {position}; it must be "
        f"{limit}. This batch was ignored. Check the losses: the usual cause is a diverged critic"
    )


def _values(signals: Signals) -> list[tuple[str | None, Float[Tensor, "p B"]]]:
    """All reported values: the TD errors, if any, as those of no network, and then the gradient norms by network."""
    norms: list[tuple[str | None, Tensor]] = list(signals.gradient_norm.items())
    return norms if signals.td_error is None else [(None, signals.td_error), *norms]


def _name(network: str | None) -> str:
    return "td_error" if network is None else f"gradient_norm[{network!r}]"
