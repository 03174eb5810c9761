"""Whole runs: killed and resumed, alone and in company, and refused where they make no sense."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gymnasium
import imageio
import numpy as np
import pytest
import torch

from aes_rl.agents import DDPG, SAC
from aes_rl.cli import main
from aes_rl.errors import UserError
from aes_rl.samplers import Adaptive
from aes_rl.training import PAPER_TASKS, Runner, RunState, Training, memory, preset, run_files, train
from aes_rl.training.loop import updates_due
from aes_rl.training.vector import simulator
from aes_rl.training.vector.step_data import Sizes

SMALL = Training(
    task="InvertedPendulum-v5",
    samplers=("uniform", "prioritized", "adaptive"),
    seeds=(0, 1),
    env_steps=260,
    capacity=150,
    evaluate_every=50,
    evaluation_episodes=2,
    log_every=20,
    checkpoint_every=40,
    workers=0,
    sac=SAC(hidden=(8, 8), batch_size=8, warm_up_steps=30),
    ddpg=DDPG(hidden=(8, 8), batch_size=8, warm_up_steps=30),
)
OPTIONS = shlex.split("""
--task InvertedPendulum-v5 --samplers uniform prioritized adaptive --seeds 0 1 --env-steps 260 --capacity 150
--evaluate-every 50 --evaluation-episodes 2 --log-every 20 --checkpoint-every 40 --workers 0
--sac.hidden 8 8 --sac.batch-size 8 --sac.warm-up-steps 30
--ddpg.hidden 8 8 --ddpg.batch-size 8 --ddpg.warm-up-steps 30
""")


def finish(config: Training, directory: Path) -> str:
    runner = Runner(config, directory)
    for _ in runner.steps():
        pass
    runner.close()
    return (directory / "evaluations.csv").read_text()


def stop_at(env_step: int, config: Training, directory: Path) -> None:
    runner = Runner(config, directory)
    for step in runner.steps():
        if step.env_step == env_step:
            runner.save()
            break
    runner.close()


def command(directory: Path, agent: str) -> list[str]:
    return [sys.executable, "-m", "aes_rl", "train", str(directory), "--agent", agent, *OPTIONS]


@pytest.mark.parametrize(("agent", "moments"), [("sac", (3, 14, 27)), ("ddpg", (9,))])
def test_killed_runs_resume_to_the_same_file(agent, moments, tmp_path) -> None:
    """SIGKILL at several moments, before and after checkpoints: evaluations.csv ends byte for byte the same."""
    expected = finish(replace(SMALL, agent=agent), tmp_path / "whole")
    assert len(expected.splitlines()) == 1 + 6 * 6
    for rows in moments:
        directory = tmp_path / f"killed-{rows}"
        table = directory / "evaluations.csv"
        process = subprocess.Popen(command(directory, agent), stdout=subprocess.DEVNULL)
        while process.poll() is None and not (table.exists() and table.read_text().count("\n") > rows):
            time.sleep(0.005)
        assert process.poll() is None, "the run ended before it could be killed"
        process.kill()
        process.wait()
        if rows > 6:
            subprocess.run(command(directory, agent), check=True, stdout=subprocess.DEVNULL)
        else:
            assert finish(replace(SMALL, agent=agent), directory) == expected
        assert table.read_text() == expected


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_stopped_runs_save_and_say_how_to_resume(kind, tmp_path) -> None:
    """The whole process group gets it, as from a terminal, a scheduler or timeout."""
    expected = finish(SMALL, tmp_path / "whole")
    directory = tmp_path / "stopped"
    table = directory / "evaluations.csv"
    words = [*command(directory, "sac"), "--workers", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not (table.exists() and table.read_text().count("\n") > 7):
        time.sleep(0.005)
    os.killpg(process.pid, kind)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + kind, "a scheduler must not take it for finished"
    assert "everything is saved" in output
    assert "aes-rl train" in output
    assert finish(SMALL, directory) == expected
    assert finish(SMALL, directory) == expected, "a finished run has nothing left to do"


def test_a_member_is_the_same_in_any_company() -> None:
    """Integers and noise the same alone and among others, floats within 1e-5 for 50 updates; bitwise among others."""
    config = replace(SMALL, env_steps=80, samplers=("adaptive",), workers=0)

    def trace(seeds):
        run = RunState(replace(config, seeds=seeds))
        position = seeds.index(1)
        slots, floats = [], []
        for step in train(run):
            if step.learned is not None:
                slots.append(step.learned.sample.draw.slots[position].tolist())
                floats.append(step.learned.update.signals.gradient_norm["critic"][position])
        actor = [parameter[position].detach() for parameter in run.agent.trained()["actor"].parameters()]
        run.close()
        return slots, floats + actor

    alone, pair, three = trace((1,)), trace((0, 1)), trace((0, 1, 2))
    assert len(alone[0]) == 50
    assert alone[0] == pair[0] == three[0]
    for one, two, other in zip(alone[1], pair[1], three[1], strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-6)
        assert torch.equal(two, other)


@pytest.mark.parametrize(("steps", "updates"), [(1, 1), (5, 1), (10, 7)])
def test_schedules_of_rounds(steps, updates) -> None:
    config = replace(SMALL, env_steps=90, steps_per_round=steps, updates_per_round=updates, workers=0)
    run = RunState(config)
    made = [0]
    for _ in train(run):
        made.append(run.update_step)
    run.close()
    for env_step in range(90):
        due = updates if env_step >= 30 and (env_step - 30) % steps == 0 else 0
        assert made[env_step + 1] - made[env_step] == due
    assert made[-1] == config.total_updates


def test_observations_of_ended_episodes_are_stored_as_they_ended() -> None:
    """The transition holds the last observation of its episode, not the first of the next."""
    run = RunState(replace(SMALL, env_steps=60, workers=0))
    ends = 0
    for step in train(run):
        newest = (run.env_step - 1) % 150
        stored = run.replay.storage.rows[:, newest]
        size = run.sizes.observation
        following = stored[:, size + run.sizes.action : -2]
        for member in range(len(run.config.members)):
            if step.ended[member]:
                ends += 1
                assert not torch.equal(following[member], run.observation[member])
            else:
                assert torch.equal(following[member], run.observation[member])
    run.close()
    assert ends > 0


def test_a_finished_run_can_be_evaluated(tmp_path, capsys) -> None:
    finish(SMALL, tmp_path / "run")
    main(["evaluate", str(tmp_path / "run"), "--episodes", "2"])
    assert "prioritized" in capsys.readouterr().out


def test_variance_is_measured_without_disturbing_the_run(tmp_path, capsys) -> None:
    config = replace(SMALL, measure_variance_every=100, measured_slots=50)
    assert finish(config, tmp_path / "measured") == finish(SMALL, tmp_path / "plain")
    with (tmp_path / "measured" / "metrics.csv").open() as handle:
        everything = list(csv.DictReader(handle))
    named = [(row["env_step"], row["sampler"], row["seed"], row["metric"]) for row in everything]
    assert len(set(named)) == len(named)
    rows = [row for row in everything if row["metric"] == "captured_fraction"]
    assert [(row["env_step"], row["sampler"]) for row in rows[:6]] == [
        ("100", sampler) for sampler in ("uniform", "uniform", "prioritized", "prioritized", "adaptive", "adaptive")
    ]
    assert all(abs(float(row["value"])) < 1e-9 for row in rows if row["sampler"] == "uniform")
    main(["lab", "variance", str(tmp_path / "measured"), "--slots", "None", "--metric", "adam"])
    assert "from all 150 live slots" in " ".join(capsys.readouterr().out.split())


def test_a_run_made_before_a_sampler_existed_can_be_read(tmp_path) -> None:
    run_files.write_config(tmp_path, SMALL)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["sampler"]["predictive"]
    path.write_text(json.dumps(values))
    assert run_files.read_config(tmp_path) == SMALL


def test_files_of_a_run(tmp_path) -> None:
    finish(SMALL, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "manifest.json", "evaluations.csv", "metrics.csv", "checkpoint", "lock"}
    assert run_files.read_config(tmp_path / "run") == SMALL
    assert not list(tmp_path.rglob("*.pkl"))


def test_bad_input_is_told_in_one_line(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    finish(replace(SMALL, env_steps=40), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    cases = [
        (["train", str(tmp_path / "a"), "--task", "Hoper-v5"], "unknown task 'Hoper-v5'"),
        (["train", str(tmp_path / "a"), "--task", "CartPole-v1"], "need a vector of numbers"),
        (["train", str(tmp_path / "a"), "--device", "cuda:7"], "finds no CUDA GPU"),
        (["train", str(tmp_path / "a"), "--seeds", "1", "1"], r"seeds (1, 1) repeat"),
        (["train", str(tmp_path / "a"), "--samplers", "adaptiv"], "unknown sampler 'adaptiv'"),
        (["train", str(tmp_path / "a"), "--preset", "paper", "--task", "Swimmer-v5"], "the paper has no parameters"),
        (["train", str(tmp_path / "run"), "--task", "Hopper-v5"], "holds a run with another configuration"),
        (["train", str(tmp_path / "other")], "is not empty and holds no run"),
        (["train", str(tmp_path / "a"), "--seeds", "-1"], "seed is -1; it must be a whole number from 0 to 2^63 - 1"),
        (["train", str(tmp_path / "a"), "--seeds", str(2**63)], f"seed is {2**63}; it must be a whole number"),
        (["evaluate", str(tmp_path / "nowhere")], "holds no run"),
        (["record", str(tmp_path / "run"), "--output", str(tmp_path)], "is a directory; give the name of a file"),
        (["compare", str(tmp_path / "a"), "--processes", "-1"], "processes is -1; it must be a whole number"),
        (["lab", "alchemy"], "unknown command 'alchemy'; the commands of aes-rl lab are variance"),
        (["sing"], "unknown command 'sing'; the commands are train, evaluate, record"),
    ]
    for words, message in cases:
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 1
        told = capsys.readouterr().err.strip()
        assert message in told, told
        assert "\n" not in told
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_a_task_that_gymnasium_no_longer_has_says_so() -> None:
    with pytest.raises(UserError, match="task 'Hopper-v3' cannot be made: "):
        simulator.make("Hopper-v3")


def test_a_module_that_is_not_found_may_be_in_this_directory() -> None:
    with pytest.raises(UserError, match=r"if own_tasks\.py is in this directory, add --module own_tasks"):
        simulator.make("own_tasks:My-v0")


def test_a_task_whose_simulator_is_missing_says_which(monkeypatch) -> None:
    def make(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(ValueError, match="'CarRacing-v3' cannot be made: Box2D is not installed"):
        simulator.make("CarRacing-v3")


def test_a_directory_of_another_run_is_refused(tmp_path) -> None:
    config = replace(SMALL, env_steps=40)
    finish(config, tmp_path / "run")
    with pytest.raises(ValueError, match="another configuration"):
        Runner(replace(config, capacity=99), tmp_path / "run")


def test_an_unfinished_checkpoint_is_ignored(tmp_path) -> None:
    config = replace(SMALL, env_steps=80)
    expected = finish(config, tmp_path / "run")
    leftover = tmp_path / "run" / "checkpoint" / "unfinished"
    leftover.mkdir()
    (leftover / "facts.json").write_text("{")
    assert finish(config, tmp_path / "run") == expected


def test_a_reward_that_is_not_finite_stops_the_run(tmp_path, monkeypatch) -> None:
    runner = Runner(replace(SMALL, workers=0), tmp_path / "run")
    receive = runner.state.environments.receive

    def broken():
        data = receive()
        if runner.state.env_step == 20:
            data.reward[2] = float("nan")
        return data

    monkeypatch.setattr(runner.state.environments, "receive", broken)
    with pytest.raises(RuntimeError, match="reward of member 2 is not finite: nan at step 21"):
        for _ in runner.steps():
            pass
    runner.close()


def test_paper_preset() -> None:
    for task in PAPER_TASKS:
        for agent in ("sac", "ddpg"):
            made = preset("paper", task, agent)
            assert made.seeds == (2, 20, 200, 2000, 20000)
    humanoid = preset("paper", "Humanoid-v5", "sac")
    assert humanoid.sampler["adaptive"] == Adaptive(floor=0.1, nu=10_000.0, retention=0.7, retention_end=0.2)
    assert humanoid.sac.value_function
    assert humanoid.sac.learning_rate == 1e-4
    assert humanoid.warm_up_steps == 1000
    assert preset("paper", "module:Humanoid-v0", "sac").sampler == humanoid.sampler, "by its name, wherever it is from"
    ddpg = preset("paper", "Hopper-v4", "ddpg")
    assert ddpg.sampler["adaptive"] == Adaptive(floor=0.1, nu=1000.0, retention=0.9)
    assert ddpg.ddpg == DDPG()


def test_updates_are_due_after_warm_up() -> None:
    run = RunState(replace(SMALL, workers=0))
    run.env_step = 29
    assert updates_due(run) == 0
    run.env_step = 30
    assert updates_due(run) == 1
    run.close()


@pytest.mark.parametrize(
    ("agent", "env_steps", "steps"),
    [("sac", 1_000_000, 10_000), ("sac", 10_000, 1000), ("sac", 5, 1), ("ddpg", 1_000_000, 25_000), ("ddpg", 900, 90)],
)
def test_the_warm_up_is_a_tenth_of_a_short_run(agent, env_steps, steps) -> None:
    config = Training(agent=agent, env_steps=env_steps)
    assert config.warm_up_steps == steps
    assert config.total_updates == env_steps - steps


def test_tensorboard_files_are_written(tmp_path) -> None:
    finish(replace(SMALL, env_steps=60, tensorboard=True), tmp_path / "run")
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_points_after_the_last_checkpoint_of_a_killed_run_leave_tensorboard(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = replace(SMALL, samplers=("uniform",), env_steps=100, log_every=10, tensorboard=True)
    runner = Runner(config, tmp_path / "run")
    for step in runner.steps():
        if step.env_step == 70:  # the last checkpoint is that of step 40
            break
    runner.close()
    finish(config, tmp_path / "run")
    shown = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    shown.Reload()
    assert [point.step for point in shown.Scalars("critic_loss/uniform-0")] == [40, 50, 60, 70, 80, 90, 100]


def test_an_episode_is_filmed_without_a_screen(tmp_path) -> None:
    """Where the machine has no offscreen renderer, the command must say what to install."""
    finish(replace(SMALL, env_steps=40), tmp_path / "run")
    command = [sys.executable, "-m", "aes_rl", "record", str(tmp_path / "run"), "--frames", "5"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode:
        assert "could not be rendered" in result.stderr
        assert "install EGL" in result.stderr
    else:
        frames = imageio.v3.imread(tmp_path / "run" / "episode.gif")
        assert 1 < len(frames) <= 5
        assert not np.array_equal(frames[0], frames[-1])


def test_memory_is_asked_for_before_it_is_needed(monkeypatch) -> None:
    """Sixty Humanoid members of a million slots are 172 GB of transitions."""
    sizes = Sizes(348, 17)
    config = replace(SMALL, task="Humanoid-v5", samplers=("uniform",), seeds=tuple(range(60)), capacity=1_000_000)
    assert 171e9 < memory.needed(config, sizes) - 60 * 1_000_000 * 26 < 174e9
    assert memory.available("cpu") > 1e8
    monkeypatch.setattr(memory, "available", lambda _: 10**9)
    expected = r"a population of 60 with 1,000,000 slots per member needs 17\d\.\d GB and cpu has 1\.0 GB"
    with pytest.raises(ValueError, match=expected):
        RunState(config)


def test_the_estimate_covers_what_replay_allocates() -> None:
    predictive = (
        "predictive",
        "predictive:forecast=mean-and-last",
        "predictive:networks=separate,forecast=mean-and-last",
    )
    for name in ("uniform", "prioritized", "adaptive", "naive", *predictive):
        config = replace(SMALL, samplers=(name,), seeds=(0, 1), capacity=100_000)
        run = RunState(config)
        held = sum(value.numel() * value.element_size() for value in run.replay.state_dict().values())
        networks = memory.needed(config, run.sizes) - memory.needed(replace(config, capacity=1), run.sizes)
        assert held <= networks + 200 <= 1.35 * held, name
        run.close()
