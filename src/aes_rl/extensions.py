"""Users' modules: they add samplers or tasks, and are imported in this process and in every process that it starts."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from aes_rl.errors import UserError

_VARIABLE = "AES_RL_MODULES"
"""Environment variable with the modules' names, separated by commas; child processes inherit it."""


def extract_modules(argv: Sequence[str]) -> list[str]:
    """The arguments without `--module NAME`; the modules are imported."""
    rest, names = [], _names()
    arguments = iter(argv)
    for argument in arguments:
        option, separator, name = argument.partition("=")
        if option != "--module":
            rest.append(argument)
            continue
        name = name if separator else next(arguments, "")
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"module is {name!r}; give a module's name, such as my_sampler for my_sampler.py")
        names.append(name)
    if names:
        os.environ[_VARIABLE] = ",".join(dict.fromkeys(names))
        load()
    return rest


def trust(task: str) -> None:
    """Allow the module of a task that the user typed, in this process and in those that it starts."""
    module = _module_of(task)
    if module and module not in _names():
        os.environ[_VARIABLE] = ",".join([*_names(), module])


def require_trust(task: str, where: str) -> None:
    """Raise if a task named in a file would import a module that the user did not type."""
    module = _module_of(task)
    if module and module not in _names():
        raise UserError(
            f"{where} has the task {task!r}, which runs the code of the module {module}; if you trust it, add "
            f"--module {module}"
        )


def _module_of(task: str) -> str:
    return task.rpartition(":")[0]


def load() -> None:
    """Import the modules; the current directory is searched as well."""
    for name in _names():
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
    return "".join(f" --module {name}" for name in _names())


def as_environment() -> dict[str, str]:
    """Environment variables for processes that do not inherit this one's."""
    if not _names():
        return {}
    places = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {_VARIABLE: ",".join(_names()), "PYTHONPATH": os.pathsep.join(places)}


def _names() -> list[str]:
    return [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
