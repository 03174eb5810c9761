"""Options given as text: name=value on the command line, and configurations in JSON."""

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aes_rl.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
_LONGEST_TEXT = 1000
"""Most characters of a text option."""
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def assigned(config: Config, assignment: str) -> Config:
    """The configuration with one option changed, given as a.b=value; the value is JSON or plain text."""
    path, separator, text = assignment.partition("=")
    if not separator:
        raise UserError(f"{assignment!r} sets no option; write name=value")
    return _changed(config, path.replace("-", "_").split("."), text, assignment)


def _changed(config: Config, path: list[str], text: str, assignment: str) -> Config:
    name, *rest = path
    known = _options_of(config)
    if name not in known:
        close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, 1))
        raise UserError(f"{assignment!r}: there is no option {name!r}; there are {', '.join(sorted(known))}{close}")
    inner = known[name]
    if rest and not _options_of(inner):
        raise UserError(f"{assignment!r}: {name} has no options of its own")
    if _options_of(inner) and not rest:
        raise UserError(f"{assignment!r}: {name} is a group of options; set one of {', '.join(_options_of(inner))}")
    value = _changed(inner, rest, text, assignment) if rest else _parsed(text, type(config), name, assignment)
    # A mapping holds configurations by name, which is as good as a dataclass of them.
    return {**config, name: value} if isinstance(config, Mapping) else replace(config, **{name: value})


def _options_of(config: object) -> dict[str, Any]:
    """The options of a configuration, or the configurations in a mapping; empty for a plain value."""
    if isinstance(config, Mapping):
        return {name: value for name, value in config.items() if is_dataclass(value)}
    return {field.name: getattr(config, field.name) for field in fields(config)} if is_dataclass(config) else {}


def from_json(config_type: type[Config], values: object, where: str) -> Config:
    """A configuration from a JSON object; missing options have their defaults.

    All names and types are checked, since the file may come from a stranger; error messages call it `where`.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where} is {_shortened(values)}; it must be an object of options")
    hints = get_type_hints(config_type)
    known = {field.name for field in fields(config_type)}
    options: dict[str, object] = {}
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


def _parsed(text: str, config_type: type, name: str, assignment: str) -> object:
    """The value of an option that a text stands for: as JSON, or else as it is, whichever fits the option's type."""
    try:
        annotation = get_type_hints(config_type)[name]
    except NameError as error:
        raise UserError(f"{assignment!r}: the types of {config_type.__name__} cannot be read: {error}") from error
    try:
        value = _frozen(json.loads(text))
    except json.JSONDecodeError:
        value = _PYTHON_WORDS.get(text, text)
    for reading in (value, text):
        if _fits(reading, annotation):
            return float(reading) if type(reading) is int and _fits(0.5, annotation) else reading
    raise UserError(f"{assignment!r}: it takes {_described(annotation)}, not {text!r}")


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
    if annotation is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
    if annotation is int:
        return type(value) is int and abs(value) < 2**63
    if annotation is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    return annotation is Any or not isinstance(annotation, type) or isinstance(value, annotation)


def _described(annotation: object) -> str:
    """The values that an option takes, in words."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_described, sorted(get_args(annotation), key=_is_type)))  # words such as auto first
    if annotation is NoneType:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _is_type(annotation: object) -> bool:
    return get_origin(annotation) is not Literal


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _frozen(value: object) -> object:
    """The value with all lists turned into tuples, nested ones included."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
