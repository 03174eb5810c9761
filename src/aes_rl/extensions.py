"""Users' modules, which are imported in this process and in every process that it starts, and optional packages."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from aes_rl.errors import UserError

_VARIABLE = "AES_RL_MODULES"
"""Environment variable with the modules' names, separated by commas; child processes inherit it."""


def extract_modules(argv: Sequence[str]) -> list[str]:
    """The arguments without `--module NAME`; the modules are imported."""
    rest, given = [], names()
    arguments = iter(argv)
    for argument in arguments:
        option, separator, name = argument.partition("=")
        if option != "--module":
            rest.append(argument)
            continue
        name = name if separator else next(arguments, "")
        if not is_name(name):
            raise UserError(f"module is {name!r}; give a module's name, such as my_sampler for my_sampler.py")
        given.append(name)
    if given:
        os.environ[_VARIABLE] = ",".join(dict.fromkeys(given))
        load()
    return rest


def require_extra(extra: str, *packages: str) -> None:
    """Raise if packages that an extra of this package installs are missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UserError(f"this needs the package {missing[0]}, which is not installed; pip install 'aes-rl[{extra}]'")


def trust(task: str) -> None:
    """Allow the module of a task that the user typed, in this process and in those that it starts."""
    module = _module_of(task)
    if module and module not in names():
        os.environ[_VARIABLE] = ",".join([*names(), module])


def require_trust(task: str, where: str) -> None:
    """Raise if a task named in a file would import a module that the user did not type."""
    module = _module_of(task)
    if module and module not in names():
        raise UserError(
            f"{where} has the task {task!r}, which runs the code of the module {module}; if you trust it, add "
            f"--module {module}"
        )


def _module_of(task: str) -> str:
    return task.rpartition(":")[0]


def load() -> None:
    """Import the modules; the current directory is searched as well."""
    for name in names():
        if "" not in sys.path:
            sys.path.append("")  # last, so that a file here cannot replace an installed module
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # a module that this one imports is missing
            raise UserError(
                f"there is no module {name!r} in the current directory or among the installed ones (--module)"
            ) from None


def as_arguments() -> str:
    """The arguments that import the same modules again, for a command line shown to the user."""
    return "".join(f" --module {name}" for name in names())


def as_environment() -> dict[str, str]:
    """Environment variables for processes that do not inherit this one's."""
    if not names():
        return {}
    places = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {_VARIABLE: ",".join(names()), "PYTHONPATH": os.pathsep.join(places)}


def is_name(text: object) -> bool:
    """Whether a text can be the name of a module."""
    return isinstance(text, str) and all(part.isidentifier() for part in text.split("."))


def names() -> list[str]:
    """The modules that the user gave, by `--module` or in the name of a task."""
    return [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
