"""Names that a package imports only when asked: a process that steps environments must not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def offer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`, from its public names and the modules that they come from."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
