"""Samplers of installed packages: found by their entry point, imported when they are named."""

import json
import os
import subprocess
import sys

import pytest

from tests import own_sampler
from tests.training.test_runs import OPTIONS

SOURCE = own_sampler.SOURCE.partition('RULES["fading"]')[0]
"""The documentation's sampler, without the line that registers it."""


def install(site, package, source, target="FadingRule", name="fading") -> None:
    """What pip leaves behind of a package with one module and an entry point."""
    info = site / f"{package}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[aes_rl.samplers]\n{name} = {package}:{target}\n")
    (info / "RECORD").write_text(f"{package}.py,,\n{package}-1.2.dist-info/METADATA,,\n")
    (site / f"{package}.py").write_text(source)


def call(site, *words, **options):
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
        **options,
    )  # fmt: skip


def test_a_sampler_of_an_installed_package_is_trained(tmp_path) -> None:
    install(tmp_path / "site", "fading_samplers", SOURCE)
    run = ["train", "run", *OPTIONS, "--samplers", "fading", "fading:floor=0.4", "--sampler.fading.floor", "0.3"]
    for words in (run, ["evaluate", "run", "--episodes", "1"]):
        done = call(tmp_path / "site", "-m", "aes_rl", *words, cwd=tmp_path, check=False)
        assert not done.returncode, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["sampler"]["fading"] == {"floor": 0.3}


def test_a_package_is_imported_only_when_its_sampler_is_used(tmp_path) -> None:
    install(tmp_path, "fading_samplers", SOURCE)
    code = (
        "import sys\n"
        "from aes_rl import Sampler\n"
        "from aes_rl.samplers import registry\n"
        "from aes_rl.training import Training\n"
        "assert 'fading' in registry.names()\n"
        "Training(samplers=('uniform',))\n"
        "assert 'fading_samplers' not in sys.modules\n"
        "named = Sampler(['fading:floor=0.3'], capacity=8)\n"
        "from fading_samplers import Fading\n"
        "assert named.configs == (Fading(0.3),)\n"
    )
    call(tmp_path, "-c", code, check=True)
    code = (
        "from aes_rl import Sampler\n"
        "from fading_samplers import Fading, FadingRule\n"
        "assert type(Sampler([Fading()], capacity=8).rules[0]) is FadingRule\n"
    )
    call(tmp_path, "-c", code, check=True)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (
            "import no_such_module",
            "FadingRule",
            "the sampler 'fading' of the package broken 1.2 cannot be imported from broken:FadingRule "
            "(ModuleNotFoundError: No module named 'no_such_module'); update the package, or uninstall it",
        ),
        (SOURCE, "Faded", "(AttributeError: module 'broken' has no attribute 'Faded'); update the package"),
        (SOURCE, "Fading", "it must be a subclass of aes_rl.samplers.rule.AbstractRule"),
    ],
)
def test_a_broken_package_is_named(tmp_path, source, target, message) -> None:
    install(tmp_path, "broken", source, target)
    done = call(tmp_path, "-m", "aes_rl", "train", "run", "--samplers", "fading", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
    call(tmp_path, "-c", "from aes_rl import Sampler; Sampler(['uniform'], capacity=8)", check=True)


def test_one_name_of_two_packages_is_refused_and_ours_are_not_replaced(tmp_path) -> None:
    for package in ("first", "second"):
        install(tmp_path, package, SOURCE)
    install(tmp_path, "third", SOURCE, name="uniform")
    code = (
        "from aes_rl.samplers.registry import find\n"
        "assert find('uniform').__name__ == 'UniformRule'\n"
        "try:\n    find('fading')\n"
        "except ValueError as error:\n    print(error)\n"
    )
    said = call(tmp_path, "-c", code, check=True).stdout
    assert said == "sampler 'fading' is offered by first 1.2 and second 1.2; uninstall all but one of them\n"
