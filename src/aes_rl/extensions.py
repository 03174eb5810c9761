"""Samplers from outside: modules that add rules to the registry, imported here and in every process that is started."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from aes_rl.errors import UserError

_VARIABLE = "AES_RL_MODULES"
"""Names of modules, separated by commas; processes that are started inherit it."""


def taken_from(words: Sequence[str]) -> list[str]:
    """What was typed without `--module NAME`; the modules named are imported."""
    left, names = [], _named()
    rest = iter(words)
    for word in rest:
        option, separator, name = word.partition("=")
        if option != "--module":
            left.append(word)
            continue
        name = name if separator else next(rest, "")
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"module is {name!r}; give a module's name, such as my_sampler for my_sampler.py")
        names.append(name)
    if names:
        os.environ[_VARIABLE] = ",".join(dict.fromkeys(names))
        load()
    return left


def load() -> None:
    """Import the modules; they are looked for in the current directory too."""
    for name in _named():
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # something that the module wants is missing
            raise UserError(f"there is no module {name!r} here or among what is installed (--module)") from None


def as_words() -> str:
    """What to type for the same modules again."""
    return "".join(f" --module {name}" for name in _named())


def as_environment() -> dict[str, str]:
    """For processes that do not inherit this one's."""
    if not _named():
        return {}
    places = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {_VARIABLE: ",".join(_named()), "PYTHONPATH": os.pathsep.join(places)}


def _named() -> list[str]:
    return [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
