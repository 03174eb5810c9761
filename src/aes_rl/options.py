"""Options given as text: name=value for any configuration."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints


def assigned(config: Any, assignment: str) -> Any:
    """The configuration with one option changed, given as a.b=value."""
    path, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"{assignment!r} sets no option; write name=value")
    name, _, rest = path.partition(".")
    name = name.replace("-", "_")
    known = {field.name for field in fields(config)}
    if name not in known:
        raise ValueError(f"{assignment!r}: there is no option {name!r}; there are {', '.join(sorted(known))}")
    current = getattr(config, name)
    if rest:
        if not is_dataclass(current):
            raise ValueError(f"{assignment!r}: {name} has no options of its own")
        return replace(config, **{name: assigned(current, f"{rest}={text}")})
    words = _words(get_type_hints(type(config))[name])
    return replace(config, **{name: text if text in words else _typed(text, current, assignment)})


def _words(annotation: Any) -> tuple[Any, ...]:
    """The words that an option takes beside its numbers, such as "auto"."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return parts
    return tuple(word for part in parts for word in _words(part))


def _typed(text: str, current: Any, assignment: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = {"True": True, "False": False, "None": None}.get(text, text)
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if current is not None and value is not None and type(value) is not type(current):
        raise ValueError(f"{assignment!r}: {text!r} is not a {type(current).__name__}, as {current!r} is")
    return value
