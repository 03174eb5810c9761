"""A run directory from a stranger: reading it imports nothing, follows no link and takes no more than it needs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aes_rl import cli, extensions
from aes_rl.cli import main
from aes_rl.training import Training, run_files
from aes_rl.training.command import loaded
from tests.training.test_damage import SMALL
from tests.training.test_runs import stop_at


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stopped") / "run"
    stop_at(50, SMALL, path)
    return path


@pytest.fixture
def run(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path) -> Path:
    """A folder that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    return folder


def change(run: Path, **options) -> None:
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))


def refused(capsys, *words: object) -> str:
    """What a command says that ends with one line."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("aes-rl: ")
    assert len(told.splitlines()) == 1
    return told


@pytest.fixture
def without_modules(monkeypatch):
    monkeypatch.setenv("AES_RL_MODULES", "")


@pytest.mark.usefixtures("without_modules")
@pytest.mark.parametrize("typed", [(), ("--module", "harmless")])
@pytest.mark.parametrize("words", [("evaluate",), ("record",), ("lab", "variance"), ("train",)])
def test_a_task_of_a_module_is_not_imported(words, typed, run, capsys, monkeypatch) -> None:
    (run / "evil.py").write_text(f"open({str(run / 'executed')!r}, 'w')")
    (run / "harmless.py").write_text("")
    monkeypatch.syspath_prepend(run)
    change(run, task="evil:InvertedPendulum-v5")
    told = refused(capsys, *words, run, *typed)
    assert "runs the code of the module evil; if you trust it, add --module evil" in told
    assert not (run / "executed").exists()


@pytest.mark.usefixtures("without_modules")
@pytest.mark.parametrize("modules", [["evil"], "evil", [5, {}, "evil", "../evil"], ["evil"] * 100_000, 7, None])
def test_a_module_that_a_run_names_is_not_imported(modules, run, capsys, monkeypatch) -> None:
    (run / "evil.py").write_text(f"open({str(run / 'executed')!r}, 'w')")
    monkeypatch.syspath_prepend(run)
    monkeypatch.chdir(run)
    change(run, modules=modules)
    main(["evaluate", str(run), "--episodes", "1"])
    for options, what in (
        ({"samplers": ["evil"]}, "sampler 'evil'"),
        ({"samplers": ["uniform"], "task": "Evil-v0"}, "task 'Evil-v0'"),
    ):
        change(run, **options)
        told = refused(capsys, "evaluate", run)
        if isinstance(modules, list):
            assert f"has the {what}, which is not known here; the run was started with --module evil" in told
        else:
            assert f"unknown {what}" in told
    assert not (run / "executed").exists()


@pytest.mark.usefixtures("without_modules")
def test_a_module_that_was_typed_is_imported(run, monkeypatch) -> None:
    (run / "tasks.py").write_text("")
    monkeypatch.syspath_prepend(run)
    change(run, task="tasks:InvertedPendulum-v5")
    extensions.extract_modules(["--module", "tasks"])
    loaded(run).close()
    del sys.modules["tasks"]


def test_a_file_here_does_not_take_the_place_of_an_installed_module(tmp_path) -> None:
    here, script = tmp_path / "here", tmp_path / "elsewhere" / "script.py"
    here.mkdir()
    (here / "imageio.py").write_text("raise SystemExit('a stranger')")
    (here / "harmless.py").write_text("")
    script.parent.mkdir()
    script.write_text(
        "from aes_rl import extensions\nextensions.extract_modules(['--module', 'harmless'])\nimport imageio"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1]), "AES_RL_MODULES": ""}
    subprocess.run([sys.executable, str(script)], cwd=here, env=environment, check=True)


@pytest.mark.parametrize(
    "name",
    ["metrics.csv", "evaluations.csv", "config.json", "lock", "checkpoint", "checkpoint/000000000050/facts.json"],
)
def test_resuming_follows_no_link(name, run, outside, capsys) -> None:
    target = run / name
    content = {path.name: path.read_bytes() for path in outside.iterdir()}
    if target.is_dir():
        shutil.copytree(target, outside / "directory")
        shutil.rmtree(target)
        target.symlink_to(outside / "directory")
    else:
        (outside / "file").write_bytes(target.read_bytes())
        target.unlink()
        target.symlink_to(outside / "file")
    content = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    if name.startswith("checkpoint/"):
        with pytest.warns(UserWarning, match="symbolic link"):
            main(["train", str(run)])
    else:
        assert "symbolic link" in refused(capsys, "train", run)
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == content


@pytest.mark.parametrize(
    "name", [".config.json.unfinished", ".manifest.json.unfinished", "manifest.json", "checkpoint/unfinished"]
)
def test_a_link_where_a_new_file_goes_is_replaced(name, run, outside) -> None:
    if name != "manifest.json":
        (run / name).symlink_to(outside if name == "checkpoint/unfinished" else outside / "mine.txt")
        main(["train", str(run)])
        assert (run / "manifest.json").exists()
    else:
        (run / name).symlink_to(outside / "nothing there")
        with pytest.raises(SystemExit):
            main(["train", str(run)])
    assert [path.name for path in outside.iterdir()] == ["mine.txt"]
    assert (outside / "mine.txt").read_text() == "mine"


def test_a_film_replaces_a_link(run, outside) -> None:
    (run / "episode.gif").symlink_to(outside / "mine.txt")
    try:
        main(["record", str(run), "--frames", "2"])
    except SystemExit:
        pytest.skip("nothing can be rendered here")
    assert (outside / "mine.txt").read_text() == "mine"
    assert not (run / "episode.gif").is_symlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": list(range(100_000))}, "more than the 4,096 members"),
        ({"seeds": "abc"}, "seeds is 'abc'; it must be tuple"),
        ({"seeds": [0.5]}, "seeds is"),
        ({"seeds": {"a": 1}}, "seeds is"),
        ({"task": "x" * 100_000}, "task is 'xxx"),
        ({"task": "x" * 900}, "task has 900 characters"),
        ({"task": 5}, "task is 5; it must be str"),
        ({"env_steps": 1e400}, "env_steps is inf"),
        ({"env_steps": 10**30}, "env_steps is 1000"),
        ({"env_steps": True}, "env_steps is True"),
        ({"capacity": 10**12}, "needs .* GB"),
        ({"evaluation_episodes": 10**9}, "evaluation_episodes is 1,000,000,000; it may be"),
        ({"device": ["cpu"]}, "device is"),
        ({"device": "rm -rf"}, "device is"),
        ({"samplers": []}, "no samplers"),
        ({"agent": "dqn"}, "agent is 'dqn'"),
        ({"sac": []}, "config.json.sac is"),
        ({"sac": {"hidden": [10**9]}}, "1,000,000,000 units"),
        ({"sac": {"hidden": [100_000] * 3}}, "needs .* GB"),
        ({"sac": {"discount": float("nan")}}, "discount is nan"),
        ({"sac": {"batch_size": 10**12}}, "needs .* GB"),
        ({"sac": {"nonsense": 1}}, "nonsense"),
        ({"sampler": {"adaptive": {"floor": "0.1"}}}, "floor is '0.1'"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_configuration_of_nonsense_is_one_line(options, message, run, capsys) -> None:
    change(run, **options)
    assert re.search(message, refused(capsys, "evaluate", run))


def test_what_was_written_is_read(tmp_path) -> None:
    """All types that options have are among those of the paper's preset and of these."""
    for config in (Training(), Training(samplers=("adaptive:nu=auto", "uniform"), measure_variance_every=5)):
        run_files.write_config(tmp_path, config)
        assert run_files.read_config(tmp_path) == config


class _Bug(ValueError):
    """A mistake of this program."""


def test_a_bug_keeps_its_traceback_and_a_mistake_on_request(monkeypatch, capsys) -> None:
    def buggy(_words):
        raise _Bug("index out of range")

    monkeypatch.setattr("aes_rl.training.command.train", buggy)
    with pytest.raises(_Bug):
        main(["train"])
    assert "unknown command 'trian'" in refused(capsys, "trian")
    with pytest.raises(ValueError, match="unknown command 'trian'"):
        main(["--debug", "trian"])


def test_memory_that_is_not_there_is_one_line(monkeypatch, capsys) -> None:
    def greedy(_words):
        raise MemoryError

    monkeypatch.setattr("aes_rl.training.command.train", greedy)
    assert "not enough memory" in refused(capsys, "train")
