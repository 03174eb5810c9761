"""Options from outside: name=value as text, and whole configurations from JSON."""

import json
import math
from dataclasses import MISSING, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from aes_rl.errors import UserError

_CHECKED = {int, float, str, bool, tuple, NoneType}
"""Types that text is checked against; an option of another type takes what it is given."""


_LONGEST_TEXT = 1000
"""Characters of an option that is a text."""


def assigned(config: Any, assignment: str) -> Any:
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
        current = getattr(config, name)
        if not is_dataclass(current):
            raise UserError(f"{assignment!r}: {name} has no options of its own")
        return replace(config, **{name: assigned(current, f"{rest}={text}")})
    try:
        annotation = get_type_hints(type(config))[name]
    except NameError as error:
        raise UserError(f"{assignment!r}: the types of {type(config).__name__} cannot be read: {error}") from error
    return replace(config, **{name: _typed(text, annotation, assignment)})


def from_json(config_type: type[Any], values: object, where: str) -> Any:
    """A configuration from what JSON holds; options that are not there have their defaults.

    Every name and every type is checked, since nobody knows who wrote it; `where` is what messages call it.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where} is {_shown(values)}; it must be an object with options")
    hints = get_type_hints(config_type)
    known = {field.name for field in fields(config_type)}
    options = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"{where} has an option {_shown(name)} that this program does not know")
        if is_dataclass(hints[name]):
            options[name] = from_json(hints[name], value, f"{where}.{name}")
            continue
        options[name] = _frozen(value)
        if not _fits(options[name], hints[name]):
            raise UserError(f"{where}.{name} is {_shown(value)}; it must be {_described(hints[name])}")
    for field in fields(config_type):
        if field.name not in options and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{where} has no {field.name}")
    return config_type(**options)


def _fits(value: object, annotation: Any) -> bool:
    """Whether a value has a type that an option may have; no numbers out of all proportion."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return any(type(word) is type(value) and word == value for word in inner)
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


def _described(annotation: Any) -> str:
    return getattr(annotation, "__name__", "") if isinstance(annotation, type) else str(annotation)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _typed(text: str, annotation: Any, assignment: str) -> Any:
    words, kinds = _choices(annotation)
    if text in words:
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = {"True": True, "False": False, "None": None}.get(text, text)
    if type(value) is int and int not in kinds and float in kinds:
        return float(value)
    value = _frozen(value)
    fits = type(value) in kinds or any(type(word) is type(value) and word == value for word in words)
    if fits or not _CHECKED.issuperset(kinds):
        return value
    if str not in kinds:
        known = [*map(str, words), *(kind.__name__.replace("NoneType", "None") for kind in kinds)]
        raise UserError(f"{assignment!r}: it takes {' or '.join(known)}, not {text!r}")
    return text


def _frozen(value: Any) -> Any:
    """Lists as tuples, inner ones too."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _choices(annotation: Any) -> tuple[tuple[Any, ...], tuple[type, ...]]:
    """The words or numbers that an option is limited to, such as "auto", and the types that it takes."""
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation), ()
    if origin in (Union, UnionType):
        parts = [_choices(part) for part in get_args(annotation)]
        return sum((words for words, _ in parts), ()), sum((kinds for _, kinds in parts), ())
    return (), (origin or annotation,)
