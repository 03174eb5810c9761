"""Checks of options: they raise one line that names the value, the limit and the fix."""

import math
import numbers
from collections.abc import Mapping, Sequence

from jaxtyping import Int
from torch import Tensor

from aes_rl.errors import UserError

_MOST_LAYERS, _MOST_UNITS = 100, 100_000


def number(name: str, value: object, otherwise: str) -> None:
    """Raise unless `value` is a number; `otherwise` ends the message with the other values that are allowed."""
    if not _is_number(value):
        raise UserError(f"{name} is {value!r}; it must be a number {otherwise}")


def positive(name: str, value: float) -> None:
    """Raise unless `value` is finite and positive."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise UserError(f"{name} is {value!r}; it must be a finite number above 0")


def non_negative(name: str, value: float) -> None:
    """Raise unless `value` is finite and not negative."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise UserError(f"{name} is {value!r}; it must be a finite number of at least 0")


def fraction(name: str, value: float) -> None:
    """Raise unless 0 ≤ `value` ≤ 1."""
    if not (_is_number(value) and 0 <= value <= 1):
        raise UserError(f"{name} is {value!r}; it must lie in [0, 1]")


def choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless `value` is one of the choices."""
    if value not in choices:
        raise UserError(f"{name} is {value!r}; it must be one of {', '.join(map(str, choices))}")


def floor(value: float) -> None:
    """Raise unless `value` is a valid floor κ, the probability reserved for the uniform part: 0 < κ ≤ 1."""
    if not (_is_number(value) and 0 < value <= 1):
        raise UserError(f"floor is {value!r}; it must lie in (0, 1]: the paper uses 0.1 and 0.2")


def count(name: str, value: int) -> None:
    """Raise unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name} is {value!r}; it must be a whole number of at least 1")


def index(name: str, value: int) -> None:
    """Raise unless `value` is a whole number from 0 that a run's files can hold, such as a seed."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise UserError(f"{name} is {value!r}; it must be a whole number from 0 to 2^63 - 1")


def layers(name: str, value: object) -> None:
    """Raise unless `value` is a tuple of the hidden layers' sizes."""
    if not isinstance(value, tuple) or not value:
        raise UserError(f"{name} is {value!r}; give a tuple with the units of at least one layer, such as (256, 256)")
    if len(value) > _MOST_LAYERS:
        raise UserError(f"{name} has {len(value):,} layers; at most {_MOST_LAYERS} are allowed")
    for units in value:
        count(name, units)
        if units > _MOST_UNITS:
            raise UserError(f"{name} has a layer of {units:,} units; at most {_MOST_UNITS:,} are allowed")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def live_slots(slots: Int[Tensor, "P K"], live: int) -> None:
    """Raise unless every slot is one of the first `live` ones."""
    for slot in (slots.min().item(), slots.max().item()) if slots.numel() else ():
        if not 0 <= slot < live:
            raise UserError(f"slot {slot} is none of the {live} live slots; give slots from 0 to {live - 1}")


def same_layout(owner: str, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raise unless a saved state has the same entries as `own`, with the same shapes."""
    if own.keys() != state.keys():
        differing = ", ".join(sorted(own.keys() ^ state.keys()))
        raise UserError(f"the state and this {owner} differ in {differing}; load it into what it was saved from")
    for name, value in own.items():
        if state[name].shape != value.shape:
            raise UserError(
                f"the state's {name} is {tuple(state[name].shape)}, this {owner}'s {tuple(value.shape)}; "
                f"make the {owner} with the sizes and members it was saved with"
            )
