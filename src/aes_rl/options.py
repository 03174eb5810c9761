"""Options given as text: name=value for any configuration."""

import json
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from aes_rl.errors import UserError

_CHECKED = {int, float, str, bool, tuple, NoneType}
"""Types that text is checked against; an option of another type takes what it is given."""


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
