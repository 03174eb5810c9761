"""Shared by the tests of the modules beside this folder, which are scripts and not a package."""

import sys
from pathlib import Path

import gymnasium
import pytest

SCRIPTS = Path(__file__).parents[1]


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the scripts, on the import path; imports and registered tasks are undone after the test."""
    monkeypatch.syspath_prepend(SCRIPTS)
    registered, imported = dict(gymnasium.registry), set(sys.modules)
    yield SCRIPTS
    gymnasium.registry.clear()
    gymnasium.registry.update(registered)
    for name in set(sys.modules) - imported:
        if (SCRIPTS / f"{name}.py").exists():
            del sys.modules[name]
