"""Options given as text: name=value on the command line, and configurations in JSON."""

import json
import math
from dataclasses import MISSING, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aes_rl.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
_CHECKED = {int, float, str, bool, tuple, NoneType}
"""Types that a value is checked against; an option of another type takes any value."""
_LONGEST_TEXT = 1000
"""Most characters of a text option."""


def assigned(config: Config, assignment: str) -> Config:
    """The configuration with one option changed, given as a.b=value."""
    path, separator, text = assignment.partition("=")
    if not separator:
        raise UserError(f"{assignment!r} sets no option; write name=value")
    name, _, rest = path.partition(".")
    name = name.replace("-", "_")
    known = {field.name for field in fields(config)}
    if name not in known:
        raise UserError(f"{assignment!r}: there is no option {name!r}; there are {', '.join(sorted(known))}")
    if rest:
        inner = getattr(config, name)
        if not is_dataclass(inner) or isinstance(inner, type):
            raise UserError(f"{assignment!r}: {name} has no options of its own")
        return replace(config, **{name: assigned(inner, f"{rest}={text}")})
    try:
        annotation = get_type_hints(type(config))[name]
    except NameError as error:
        raise UserError(f"{assignment!r}: the types of {type(config).__name__} cannot be read: {error}") from error
    return replace(config, **{name: _parsed(text, annotation, assignment)})


def from_json(config_type: type[Config], values: object, where: str) -> Config:
    """A configuration from a JSON object; missing options have their defaults.

    All names and types are checked, since the file may come from a stranger; error messages call it `where`.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where} is {_shortened(values)}; it must be an object of options")
    hints = get_type_hints(config_type)
    known = {field.name for field in fields(config_type)}
    options: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"{where} has an unknown option {_shortened(name)}; it may be of another version")
        if is_dataclass(hints[name]):
            options[name] = from_json(hints[name], value, f"{where}.{name}")
            continue
        options[name] = _frozen(value)
        if not _fits(options[name], hints[name]):
            raise UserError(f"{where}.{name} is {_shortened(value)}; it must be {_described(hints[name])}")
    for field in fields(config_type):
        if field.name not in options and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{where} has no {field.name}; it has no default, so add it")
    return config_type(**options)


def _fits(value: object, annotation: object) -> bool:
    """Whether a value has the annotated type; integers must fit 64 bits, floats be finite, texts be short."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return any(type(choice) is type(value) and choice == value for choice in inner)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is tuple:
        parts = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if origin is dict:
        return isinstance(value, dict)
    if annotation is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if annotation is int:
        return type(value) is int and abs(value) < 2**63
    if annotation is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _described(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parsed(text: str, annotation: object, assignment: str) -> object:
    """The value that a text stands for, in one of the option's types."""
    choices, types = _accepted(annotation)
    if text in choices:
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = {"True": True, "False": False, "None": None}.get(text, text)
    if type(value) is int and int not in types and float in types:
        return float(value)
    value = _frozen(value)
    fits = type(value) in types or any(type(choice) is type(value) and choice == value for choice in choices)
    if fits or not _CHECKED.issuperset(types):
        return value
    if str not in types:
        known = [*map(str, choices), *(_described(own).replace("NoneType", "None") for own in types)]
        raise UserError(f"{assignment!r}: it takes {' or '.join(known)}, not {text!r}")
    return text


def _frozen(value: object) -> object:
    """The value with all lists turned into tuples, nested ones included."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _accepted(annotation: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The literal values that an option takes, such as "auto", and the types that it takes."""
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation), ()
    if origin in (Union, UnionType):
        parts = [_accepted(part) for part in get_args(annotation)]
        return sum((choices for choices, _ in parts), ()), sum((types for _, types in parts), ())
    return (), (origin or annotation,)
