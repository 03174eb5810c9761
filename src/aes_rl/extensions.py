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


def trust(task: str) -> None:
    """A task that the user has typed may bring its module, here and in every process that is started."""
    module = _module_of(task)
    if module and module not in _named():
        os.environ[_VARIABLE] = ",".join([*_named(), module])


def require_trust(task: str, where: str) -> None:
    """Raise where a task that stands in a file would import a module that nobody has typed."""
    module = _module_of(task)
    if module and module not in _named():
        raise UserError(
            f"{where} has the task {task!r}, which runs the code of the module {module}; if you trust it, add "
            f"--module {module}"
        )


def _module_of(task: str) -> str:
    return task.rpartition(":")[0]


def load() -> None:
    """Import the modules; they are looked for in the current directory too."""
    for name in _named():
        if "" not in sys.path:
            sys.path.append("")  # last: a file here must not take the place of an installed module
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
