"""Without a host library the core works, and an adapter says what to install."""

import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from aes_rl.integrations.hosts import require

ADAPTERS = {"stable_baselines3": "sb3", "torchrl": "torchrl", "tianshou": "tianshou", "skrl": "skrl"}


@pytest.mark.parametrize("host", ADAPTERS)
def test_a_missing_host_is_named_with_its_extra(host) -> None:
    """In a process that cannot see the host's installation."""
    code = (
        "import sys, importlib.metadata as metadata\n"
        f"sys.modules[{host!r}] = None\n"
        "original = metadata.version\n"
        "def version(name):\n"
        f"    if name == {host!r}: raise metadata.PackageNotFoundError(name)\n"
        "    return original(name)\n"
        "metadata.version = version\n"
        "import aes_rl\n"
        "aes_rl.Adaptive()\n"
        f"import aes_rl.integrations.{host}\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert f"{host} is not installed; pip install 'aes-rl[{ADAPTERS[host]}]'" in answer.stderr


@pytest.mark.parametrize(
    ("found", "is_fine"), [("2.9.0", True), ("2.9.2", True), ("2.14.0a1", True), ("2.8.9", False), ("3.0.0", False)]
)
def test_versions_outside_the_range_are_refused(found, is_fine, monkeypatch) -> None:
    monkeypatch.setattr("aes_rl.integrations.hosts.version", lambda _: found)
    if is_fine:
        require("host", "2.9", "3", "extra")
        return
    with pytest.raises(ImportError, match=rf"host {found} is installed; this needs at least 2.9 and below 3"):
        require("host", "2.9", "3", "extra")


@pytest.mark.parametrize("host", ["stable-baselines3", "torchrl", "tianshou"])
def test_the_installed_versions_are_in_the_stated_ranges(host) -> None:
    """Those of pyproject.toml."""
    stated = [Requirement(line) for line in metadata.requires("aes-rl") or []]
    own = [requirement for requirement in stated if requirement.name == host]
    assert own
    assert all(requirement.specifier.contains(metadata.version(host)) for requirement in own)
    __import__(f"aes_rl.integrations.{host.replace('-', '_')}")
