"""Run directories made to hurt: links, pipes, and small files that ask for much."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aes_rl.cli import main
from aes_rl.report import figures, limits, training_figures
from aes_rl.report import load as loading
from aes_rl.report.load import load
from tests.report.conftest import write_run

SCORES = {("uniform", 2): [1.0, 2.0, 3.0]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs" / "run", SCORES)
    return tmp_path / "runs" / "run"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "mine").write_text("mine")
    return path


def test_links_in_the_report_are_replaced_and_not_written_through(run: Path, outside: Path) -> None:
    (run / "report" / "figures").mkdir(parents=True)
    names = ["index.html", "report.md", "measures.csv", "measures.md", "measures.tex", "verdicts.csv", "together.csv",
             *(f"figures/curves_sac.{suffix}" for suffix in ("png", "svg", "pdf"))]  # fmt: skip
    for name in names:
        (run / "report" / name).symlink_to(outside / "mine")
    main(["report", str(run)])
    assert (outside / "mine").read_text() == "mine"
    for name in names:
        assert not (run / "report" / name).is_symlink()
        assert (run / "report" / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["report", "report/figures"])
def test_linked_directories_are_not_written_into(run: Path, outside: Path, name: str, capsys) -> None:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(SystemExit):
        main(["report", str(run)])
    assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert [path.name for path in outside.iterdir()] == ["mine"]


def test_what_the_user_names_may_be_a_link(run: Path, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "given").symlink_to(run)
    (tmp_path / "output").symlink_to(outside)
    main(["report", str(tmp_path / "given"), "--output", str(tmp_path / "output")])
    assert (outside / "index.html").exists()


def test_linked_directories_are_not_searched(run: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "other", SCORES, "Ant-v5")
    (run.parent / "link").symlink_to(tmp_path / "other")
    (run / "loop").symlink_to(run.parent)
    results = load(run.parent)
    assert [curve.task for curve in results.curves] == ["Hopper-v5"]
    assert any("1 more: symbolic links to directories are not followed" in line for line in results.problems)


def test_an_agent_cannot_name_a_file_outside(run: Path, tmp_path: Path) -> None:
    write_run(run.parent / "bad", SCORES, agent="/../../../escaped")
    main(["report", str(run.parent)])
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("MOST_RUNS", 3, "4 runs, more than 3"),
        ("MOST_TASKS", 1, "2 tasks, more than 1"),
        ("MOST_METHODS", 2, "combinations of task, agent and sampler, more than 2"),
        ("MOST_SEEDS", 1, "2 seeds of one sampler, more than 1"),
    ],
)
def test_a_report_takes_so_many_runs(tmp_path: Path, monkeypatch, limit: str, value: int, reason: str) -> None:
    assert getattr(limits, limit) > value
    monkeypatch.setattr(loading, limit, value)
    write_run(tmp_path / "a", SCORES)
    write_run(tmp_path / "b", {("uniform", 3): [1.0], ("naive", 3): [1.0], ("adaptive", 3): [1.0]}, "Hopper-v5")
    write_run(tmp_path / "c", {("uniform", 2): [1.0]}, "Ant-v5")
    results = load(tmp_path)
    assert 0 < len(results.curves) < 5
    assert any("is left out" in line and reason in line for line in results.problems)


def test_many_samplers_leave_room_for_the_curves(tmp_path: Path) -> None:
    """Where labels leave none, matplotlib warns and draws panels over each other."""
    names = ["uniform", *(f"{'sampler' * 6}{number}" for number in range(30))]
    write_run(tmp_path / "run", {(name, 0): [1.0, 2.0 + number] for number, name in enumerate(names)})
    rows = "".join(f"1000,{name},0,captured_fraction,0.5\n" for name in names)
    (tmp_path / "run" / "metrics.csv").write_text(f"env_step,sampler,seed,metric,value\n{rows}")
    results = load(tmp_path)
    captured = training_figures.captured_fractions(results, "sac")
    assert captured is not None
    for figure in (training_figures.learning_curves(results, "sac", 1, []), captured[0]):
        figures.save(figure, tmp_path, "figure")


def test_too_deep_and_too_many_directories_are_told(tmp_path: Path, monkeypatch) -> None:
    write_run(tmp_path / "a", SCORES)
    write_run(tmp_path.joinpath(*"bcdefghijklmn"), SCORES, "Ant-v5")
    results = load(tmp_path)
    assert len(results.curves) == 1
    assert any("more than 10 levels below is not searched" in line for line in results.problems)
    monkeypatch.setattr("aes_rl.report.search.MOST_DIRECTORIES", 5)
    assert any("more than 5 directories" in line for line in load(tmp_path / "a" / "..").problems)
    monkeypatch.setattr("aes_rl.report.search.MOST_RUN_DIRECTORIES", 1)
    monkeypatch.setattr("aes_rl.report.search.MOST_DIRECTORIES", 100)
    write_run(tmp_path / "b" / "run", SCORES, "Ant-v5")
    assert any("the first 1 are read" in line for line in load(tmp_path).problems)


def test_names_of_directories_cannot_break_the_report(tmp_path: Path, capsys) -> None:
    write_run(tmp_path / "runs" / "good", SCORES)
    bad = Path(os.fsdecode(os.fsencode(tmp_path / "runs") + b"/\xff\n\x1b[31m<script>[bold]"))
    bad.mkdir()
    (bad / "config.json").write_text("{")
    main(["report", str(tmp_path / "runs")])
    assert r"\udcff\n\x1b[31m&lt;script&gt;" in (tmp_path / "runs" / "report" / "index.html").read_text()
    assert "\x1b" not in capsys.readouterr().out


BOMBS = 10
HEAD = b"env_step,update_step,sampler,seed,metric,value\n"


def bombs(directory: Path) -> None:
    """Small files that ask for gigabytes, or for minutes."""
    names = [f"x{number}" for number in range(1000)]
    study = {"tasks": names, "agents": names, "samplers": names, "seeds": list(range(1000))}
    (directory / "study.json").write_text(json.dumps(study))
    runs = [directory / f"bomb-{number}" for number in range(BOMBS)]
    for number, path in enumerate(runs):
        write_run(path, {("uniform", number): [1.0, 2.0, 3.0]})
    packed = {
        0: b"x" * 1_000_000,
        1: b"\n" * 1_000_000,
        2: b"1,1,uniform,2,captured_fraction,1\n" * 30_000,
        3: b"1,1,uniform,3,loss,1\n" * 50_000,
    }
    for number, content in packed.items():
        # Packed files one after another are one packed file.
        (runs[number] / "metrics.csv.gz").write_bytes(gzip.compress(HEAD) + gzip.compress(content) * 3_000)
    for number, config in (
        (4, {"task": "x" * 100_000}),
        (5, {"seeds": list(range(100_000))}),
        (6, {"samplers": names, "seeds": list(range(1000))}),
    ):
        path = runs[number] / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
    (runs[7] / "evaluations.csv").unlink()
    os.mkfifo(runs[7] / "evaluations.csv")
    (runs[8] / "config.json").write_text("[" * 900_000)
    rows = "".join(f"{step},{step},uniform,9,1\n" for step in range(1, 200_000))
    (runs[9] / "evaluations.csv").write_text(f"env_step,update_step,sampler,seed,mean_return\n{rows}")


def test_bombs_take_little_memory(run: Path) -> None:
    bombs(run.parent)
    code = (
        "import sys; from aes_rl.cli import main; main(['report', sys.argv[1]]);"
        "print(*(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run.parent)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-2]) < 1_500_000, "kB"
    page = (run.parent / "report" / "index.html").read_text()
    for number in range(BOMBS):
        assert f"bomb-{number}" in page
    assert "names 1,000,000,000,000 runs" in page
