"""Checkpoints that are damaged, changed or from a stranger, and directories that vanish: nothing is silently wrong."""

import errno
import os
import random
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from aes_rl.agents import SAC
from aes_rl.cli import main
from aes_rl.errors import RunError, UserError
from aes_rl.replay import Replay
from aes_rl.samplers.registry import RULES
from aes_rl.samplers.uniform import Uniform, UniformRule
from aes_rl.training import Runner, RunState, Training, checkpoint
from aes_rl.training.command import loaded
from aes_rl.types import Transition
from tests.training.checkpoints import newest, rewrite_facts, rewrite_tensors
from tests.training.test_runs import finish, stop_at

SMALL = Training(
    task="InvertedPendulum-v5",
    samplers=("uniform",),
    env_steps=60,
    capacity=50,
    evaluate_every=30,
    evaluation_episodes=1,
    log_every=10,
    checkpoint_every=20,
    sac=SAC(hidden=(4, 4), batch_size=4, warm_up_steps=10),
)
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="the run finds its GPU")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A run that was stopped at step 50, with checkpoints of 40 and 50."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    stop_at(50, SMALL, path)
    return path


@pytest.fixture
def run(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def steps_kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoint").iterdir())


def test_the_last_two_checkpoints_are_kept(stopped) -> None:
    assert steps_kept(stopped) == ["000000000040", "000000000050"]


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(run, tmp_path) -> None:
    expected = finish(SMALL, tmp_path / "whole")
    tensors = newest(run) / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"000000000050 cannot be used.*continues from step 40 instead"):
        found = finish(SMALL, run)
    assert found == expected
    assert steps_kept(run) == ["000000000040", "000000000060", "damaged-000000000050"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "facts.json", "checksums.json"])
def test_no_flipped_bit_is_accepted(run, name) -> None:
    shutil.rmtree(run / "checkpoint" / "000000000040")
    path = newest(run) / name
    whole, chance = path.read_bytes(), random.Random(0)
    for _ in range(12):
        place = chance.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match="cannot be used"):
            loaded(run)
    path.write_bytes(whole)
    loaded(run).close()


@pytest.mark.parametrize(
    ("facts", "tensors", "message"),
    [
        ({"version": 99}, {}, "format version is 99"),
        ({"version": 3}, {}, "format version is 3; this program reads version 4"),
        ({"env_step": 61}, {}, "environment step 61; the run has 60"),
        ({"env_step": -1}, {}, "step -1"),
        ({"env_step": 49}, {}, "clock is 50 at 49|shape"),
        ({"env_step": "50"}, {}, "env_step is '50'; it must be int"),
        ({"seconds": float("inf")}, {}, "seconds is inf"),
        ({"returns": []}, {}, "returns of 0 members"),
        ({"simulators": [5]}, {}, "simulators is"),
        ({"more": 1}, {}, "more"),
        ({}, {"agent__actor__0__weight": None}, "lacks agent"),
        ({}, {"agent__actor__0__weight": lambda t: t * torch.nan}, "not finite in it"),
        ({}, {"agent__actor__0__weight": lambda t: t.double()}, "float64"),
        ({}, {"agent__actor__0__weight": lambda t: t[:, :2]}, "shape"),
        ({}, {"replay__rows": lambda t: t[:, :7]}, "shape"),
        ({}, {"environments__0__simulator": lambda t: t * torch.nan}, "simulator of an environment is not finite"),
        ({}, {"environments__0__simulator": lambda t: t[:3]}, "the saved simulator of an environment is"),
        ({}, {"environments__0__xpos": None}, "lacks xpos"),
    ],
)
def test_a_checkpoint_that_was_changed_is_refused(run, facts, tensors, message) -> None:
    shutil.rmtree(run / "checkpoint" / "000000000040")
    if facts:
        rewrite_facts(run, **facts)
    names = {name.replace("agent__actor__0__weight", actor_name(run)): change for name, change in tensors.items()}
    if names:
        rewrite_tensors(run, **names)
    with pytest.raises(ValueError, match=message):
        loaded(run)


def actor_name(run: Path) -> str:
    made = loaded(run) if not hasattr(actor_name, "known") else None
    if made is not None:
        actor_name.known = next(name for name in made.agent.state_dict() if name.startswith("actor"))
        made.close()
    return f"agent.{actor_name.known}".replace(".", "__")


@dataclass(frozen=True)
class Summing:
    """A sampler of somebody else, whose `sums` are not of slots."""


class SummingRule(UniformRule):
    config_type: ClassVar = Summing

    def __init__(self, config, setting):
        del config
        super().__init__(Uniform(), setting)
        self.sums = torch.zeros(setting.members, 200, dtype=torch.float64)
        self.seen = torch.zeros(3)

    def advance(self, update_step):
        self.sums += update_step
        self.seen += 1

    def state_dict(self):
        return {"sums": self.sums, "seen": self.seen}


def test_a_sampler_may_call_its_state_what_it_likes(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(RULES, "summing", SummingRule)

    def made() -> RunState:
        run = RunState(SMALL)
        run.replay = Replay([Summing()], capacity=50, observation_size=4, action_size=1, seeds=[0])
        return run

    before, after = made(), made()
    for step in range(1, 41):
        before.replay.add(
            Transition(torch.rand(1, 4), torch.rand(1, 1), torch.rand(1), torch.rand(1, 4), torch.rand(1))
        )
        before.replay.sample(4)
        before.replay.advance(step)
    before.env_step = before.update_step = 40
    checkpoint.save(before, tmp_path / "checkpoint", {"evaluations": 0, "metrics": 0})
    checkpoint.load(after, tmp_path / "checkpoint")
    expected, found = before.replay.state_dict(), after.replay.state_dict()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    for run in (before, after):
        run.close()


@pytest.mark.parametrize(
    "error",
    [SafetensorError(f"IoError(Os {{ code: {errno.ENOSPC} }})"), OSError(errno.ENOSPC, "No space left on device")],
)
def test_a_full_disk_is_told_and_leaves_the_last_checkpoint(error, tmp_path, monkeypatch) -> None:
    runner = Runner(SMALL, tmp_path / "run")

    def full(*_):
        raise error

    for step in runner.steps():
        if step.env_step == 30:
            monkeypatch.setattr(checkpoint, "save_file", full)
            with pytest.raises(RunError, match=r"step 30 could not be written .*the last one, which is intact"):
                runner.save()
            break
    runner.close()
    assert steps_kept(tmp_path / "run") == ["000000000020"]
    Runner(SMALL, tmp_path / "run").close()


def test_an_agent_that_has_diverged_is_not_saved(tmp_path) -> None:
    runner = Runner(SMALL, tmp_path / "run")
    for step in runner.steps():
        if step.env_step == 30:
            next(iter(runner.state.agent.state_dict().values())).fill_(torch.nan)
            with pytest.raises(UserError, match=r"is not finite at step 30; its last checkpoint is intact"):
                runner.save()
            break
    runner.close()
    assert steps_kept(tmp_path / "run") == ["000000000020"]


@pytest.mark.parametrize("what", ["the directory", "a table"])
def test_files_that_vanish_during_the_run_are_missed(what, tmp_path) -> None:
    runner = Runner(SMALL, tmp_path / "run")

    def train():
        for step in runner.steps():
            if step.env_step == 15 and what == "the directory":
                shutil.rmtree(tmp_path / "run")
            elif step.env_step == 15:
                os.replace(tmp_path / "run" / "metrics.csv", tmp_path / "elsewhere")

    with pytest.raises(RuntimeError, match=r"metrics\.csv was removed or replaced"):
        train()
    runner.close()


def test_the_last_evaluation_has_seeds_of_its_own(tmp_path) -> None:
    """A run of 75 steps evaluated every 30: at 30, 60 and 75."""
    asked: list[int] = []
    runner = Runner(replace(SMALL, env_steps=75), tmp_path / "run")
    seeds_of = runner.state.evaluation_seeds
    runner.state.evaluation_seeds = lambda number, episodes: asked.append(number) or seeds_of(number, episodes)
    for _ in runner.steps():
        pass
    runner.close()
    assert asked == [1, 2, 3]


def test_a_run_of_a_gpu_is_loaded_without_one(run, capsys) -> None:
    path = run / "config.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    if not torch.cuda.is_available():
        loaded(run).close()
        assert "using the CPU" in capsys.readouterr().out
    made = loaded(run, "cpu")
    assert made.device.type == "cpu"
    made.close()


@WITHOUT_GPU
@pytest.mark.parametrize("options", [[], ["--device", "cpu"]])
@pytest.mark.parametrize("words", [["evaluate"], ["record", "--frames", "2"], ["lab", "variance"]])
def test_commands_take_a_run_of_a_gpu_without_one(words, options, run, capsys) -> None:
    path = run / "config.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    try:
        main([*words, str(run), *options])
    except SystemExit:  # a machine that cannot render has got as far as that
        assert "could not be rendered" in capsys.readouterr().err
        assert words[0] == "record"
    else:
        assert ("using the CPU" in capsys.readouterr().out) == (not options)


@WITHOUT_GPU
def test_a_device_that_is_missing_is_told_with_an_option_that_exists(run, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", str(run), "--device", "cuda"])
    told = capsys.readouterr().err
    option, value = re.search(r"use (--\S+) (\S+)$", told.strip()).groups()
    main(["evaluate", str(run), option, value, "--episodes", "1"])


def test_an_actor_that_has_diverged_is_not_played(run) -> None:
    made = loaded(run)
    from aes_rl.training.evaluation import Evaluator

    for weight in made.agent.state_dict().values():
        if weight.is_floating_point():
            weight.fill_(torch.nan)
    with pytest.raises(RuntimeError, match="policy of member 0 gives actions that are not finite"):
        Evaluator("InvertedPendulum-v5", 1, 1, 0).evaluate(made.agent, [[0]])
    made.close()


@pytest.mark.parametrize("flushes", [False, True])
def test_settings_of_torch_are_given_back(flushes, tmp_path) -> None:
    """An application that trains inside its own process does not notice."""

    def unchanged() -> bool:
        product = torch.tensor(1e-40) * 1
        return (float(product) == 0) == (float(np.float32(1e-40) * np.float32(1)) == 0) == flushes

    torch.set_flush_denormal(flushes)
    try:
        runner = Runner(SMALL, tmp_path / "run")
        assert unchanged()
        for step in runner.steps():
            assert unchanged(), step.env_step
        runner.close()
        assert unchanged()
    finally:
        torch.set_flush_denormal(False)


def test_settings_of_torch_are_given_back_by_a_run_that_fails(tmp_path, monkeypatch) -> None:
    runner = Runner(SMALL, tmp_path / "run")
    monkeypatch.setattr(runner.state.environments, "receive", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(runner.steps())
    runner.close()
    assert np.float32(1e-40) * np.float32(1) != 0
