"""Shared by tests of tasks that scripts register."""

import sys
from pathlib import Path

import gymnasium
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def scripts(monkeypatch):
    """The folder whose modules have tasks, found by name meanwhile; Gymnasium's registry is afterwards what it was."""
    monkeypatch.syspath_prepend(SCRIPTS)
    registered, imported = dict(gymnasium.registry), set(sys.modules)
    yield SCRIPTS
    gymnasium.registry.clear()
    gymnasium.registry.update(registered)
    for name in set(sys.modules) - imported:
        if (SCRIPTS / f"{name}.py").exists():
            del sys.modules[name]
