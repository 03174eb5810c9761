"""Studies on this machine: killed, failing, rejected."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aes_rl.cli import main
from aes_rl.machine import cores
from aes_rl.study.command import Execution, run_study
from aes_rl.study.grid import prepare, run_groups
from aes_rl.study.local import LocalExecutor
from aes_rl.study.schedule import AbstractExecutor, AbstractJob, execute

FAST = Execution(processes=2, retries=0)


def evaluations(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("evaluations.csv")}


def argv_of(study, directory):
    return [
        "compare", str(directory), "--tasks", *study.tasks, "--agents", *study.agents, "--samplers", *study.samplers,
        "--seeds", *map(str, study.seeds), "--preset", study.preset, "--env-steps", str(study.env_steps),
        "--members-per-population", str(study.members_per_population), "--set", *study.set, "--retries", "0",
    ]  # fmt: skip


def _rows_in(directory):
    return sum(path.read_text().count("\n") for path in directory.glob("*/*/*/evaluations.csv"))


def test_a_study_killed_at_random_ends_as_an_uninterrupted_one(longer, tmp_path) -> None:
    run_study(longer, tmp_path / "whole", FAST)
    expected = evaluations(tmp_path / "whole")
    assert len(expected) == 3
    command = [sys.executable, "-m", "aes_rl", *argv_of(longer, tmp_path / "killed")]
    moments = sorted(random.Random(0).sample(range(_rows_in(tmp_path / "whole") // 2), 3))
    for moment in moments:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and _rows_in(tmp_path / "killed") <= moment:
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -signal.SIGKILL, "the study ended before it could be killed"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert evaluations(tmp_path / "killed") == expected


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_study_has_saved_when_it_ends_and_says_so(kind, longer, tmp_path) -> None:
    study = replace(longer, env_steps=12_000)
    argv = argv_of(replace(study, set=(*study.set[:-2], "capacity=200")), tmp_path)  # no checkpoint but the last
    with subprocess.Popen([sys.executable, "-m", "aes_rl", *argv], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(tmp_path.glob("*/*/*/progress.json")):
            time.sleep(0.05)
        process.send_signal(kind)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + kind
    assert "everything is saved" in output
    running = list(tmp_path.rglob("progress.json"))
    saved = [path.parent for path in tmp_path.rglob("checkpoint")]
    assert {path.parent for path in running} <= set(saved), "a worker did not save"


def test_variants_of_one_sampler_make_a_study(tiny, tmp_path) -> None:
    study = replace(tiny, samplers=("adaptive", "adaptive:floor=0.5"), set=(*tiny.set, "sampler.adaptive.nu=auto"))
    run_study(study, tmp_path, FAST)
    assert all("adaptive:floor=0.5" in path.read_text() for path in tmp_path.rglob("evaluations.csv"))


def test_finished_groups_are_skipped(tiny, tmp_path) -> None:
    first = run_study(tiny, tmp_path, FAST)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluations.csv")}
    second = run_study(tiny, tmp_path, FAST)
    assert len(first.finished) == 2
    assert sorted(second.skipped) == sorted(first.finished)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("evaluations.csv")} == before


def test_a_log_shows_the_progress_of_groups(tiny, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("aes_rl.study.command._LOG_INTERVAL", 0)
    run_study(tiny, tmp_path, FAST)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " step " in line]
    assert {words[0] for words in lines} == {group.name for group in run_groups(tiny)}


def test_a_group_that_cannot_write_fails_in_one_line_and_the_other_finishes(tiny, tmp_path, capsys) -> None:
    groups = prepare(tiny, tmp_path / "study")
    (tmp_path / "study" / groups[0].name / "evaluations.csv").symlink_to("/dev/full")
    with pytest.raises(SystemExit):
        main(argv_of(tiny, tmp_path / "study"))
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert f"1 of 2 groups failed ({groups[0].name}: " in captured.err
    assert "evaluations.csv is a symbolic link; in a run directory only regular files are" in captured.err
    assert "Traceback" in captured.out
    assert (tmp_path / "study" / groups[1].name / "manifest.json").exists()


def test_bad_input_is_reported_in_one_line(capsys) -> None:
    for argv, message in (
        (["compare", "/proc/study", "--tasks", "InvertedPendulum-v5"], "/proc/study"),
        (["compare", "x", "--tasks", "Hoper-v5"], "the paper has no parameters for 'Hoper-v5'"),
        (["compare", "x", "--samplers", "adaptiv"], "unknown sampler 'adaptiv'"),
        (["compare", "x", "--threads", "0"], "threads is 0"),
    ):
        with pytest.raises(SystemExit):
            main(argv)
        error = capsys.readouterr().err.strip()
        assert message in error
        assert "\n" not in error
    assert not Path("x").exists()


class FailingJob(AbstractJob):
    def outcome(self):
        return "Traceback\nValueError: no luck"

    def stop(self):
        pass

    def kill(self):
        pass


class SometimesFailing(AbstractExecutor):
    """Fails the first attempts at one group and hands the rest to real processes."""

    most_jobs = 2

    def __init__(self, unlucky, failures):
        self._real, self._unlucky, self._left = LocalExecutor(2), unlucky, failures

    def start(self, directory):
        if str(directory).endswith(self._unlucky) and self._left:
            self._left -= 1
            return FailingJob()
        return self._real.start(directory)

    def close(self):
        pass


@pytest.mark.parametrize(("failures", "is_finished"), [(2, True), (3, False)])
def test_failures_are_retried_a_stated_number_of_times(tiny, tmp_path, failures, is_finished) -> None:
    groups = prepare(tiny, tmp_path)
    events = []
    executor = SometimesFailing(groups[0].name, failures)
    summary = execute(
        groups, tmp_path, executor, retries=2, on_event=lambda event: events.append((event.name, event.kind))
    )
    assert (groups[0].name in summary.finished) == is_finished
    assert groups[1].name in summary.finished
    assert events.count((groups[0].name, "retried")) == 2
    if not is_finished:
        assert summary.failed == {groups[0].name: "Traceback\nValueError: no luck"}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or cores() < 2, reason="needs two cores to bind to")
def test_groups_on_a_gpu_have_separate_cores(tiny, tmp_path) -> None:
    """Only how they are started; the configuration says what they train on."""
    assert LocalExecutor(device="cuda").most_jobs == 1
    executor = LocalExecutor(2, device="cuda")
    directories = [tmp_path / group.name for group in prepare(tiny, tmp_path)]
    first, second = (executor.start(directory) for directory in directories)
    shares = [os.sched_getaffinity(job._process.pid) for job in (first, second)]
    first.stop()
    third = executor.start(directories[0])
    assert os.sched_getaffinity(third._process.pid) == shares[0]
    second.stop()
    third.stop()
    assert shares[0].isdisjoint(shares[1])
    assert shares[0] | shares[1] == os.sched_getaffinity(0)


def test_two_studies_at_once_do_not_train_a_group_twice(tiny, tmp_path) -> None:
    groups = prepare(tiny, tmp_path / "study")
    first, second = (LocalExecutor(1).start(tmp_path / "study" / groups[0].name) for _ in range(2))
    deadline = time.monotonic() + 120
    while (first.outcome() is None or second.outcome() is None) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert first.outcome() == second.outcome() == ""
    rows = (tmp_path / "study" / groups[0].name / "evaluations.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * groups[0].runs
    assert len(run_groups(tiny)) == 2


def test_whatever_a_failed_worker_wrote_is_its_own_failure(tmp_path, monkeypatch) -> None:
    """Its log may hold any bytes, and the report of an earlier attempt is not this one's."""
    worker = tmp_path / "worker"
    worker.write_text("#!/bin/sh\nprintf 'no \\377 module' >&2\nexit 1\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    (tmp_path / "failure.txt").write_text("of an earlier attempt")
    job = LocalExecutor(1).start(tmp_path)
    while (outcome := job.outcome()) is None:
        time.sleep(0.01)
    assert outcome == "no \N{REPLACEMENT CHARACTER} module\nthe worker ended with exit code 1"
