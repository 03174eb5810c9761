"""Public names of a package that are imported on first use: processes that step environments need no torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec


def offer(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, from its public names and the modules that define them."""

    def find(name: str) -> object:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(homes)
