"""Runs with samplers that look at candidates or draw for the actor alone, beside others."""

from dataclasses import replace

import pytest

from aes_rl.errors import UserError
from aes_rl.integrations.selection import Selection
from aes_rl.samplers.la3p import LA3P
from aes_rl.samplers.laber import LaBER
from aes_rl.training import RunState, train
from tests.training.test_runs import SMALL, finish, stop_at

RIVALS = replace(SMALL, samplers=("laber", "uniform", "la3p", "lap", "roer"), seeds=(0,), env_steps=120)


@pytest.mark.parametrize("agent", ["sac", "ddpg"])
def test_a_stopped_run_continues_as_if_it_had_not_stopped(agent, tmp_path) -> None:
    config = replace(RIVALS, agent=agent)
    stop_at(77, config, tmp_path / "stopped")
    assert finish(config, tmp_path / "stopped") == finish(config, tmp_path / "whole")


def test_candidates_do_not_change_the_draws_of_others() -> None:
    def draws_of(config, member):
        run = RunState(config)
        learned = [step.learned for step in train(run) if step.learned is not None]
        run.close()
        return [one.sample.draw.slots[member].tolist() for one in learned]

    config = replace(RIVALS, env_steps=60)
    assert draws_of(config, 1) == draws_of(replace(config, samplers=("uniform",)), 0)


def test_what_needs_one_probability_per_slot_is_rejected(tmp_path) -> None:
    with pytest.raises(UserError, match="'laber' has no fixed probability per slot"):
        finish(replace(RIVALS, measure_variance_every=50), tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [(LaBER(), "LaBER chooses among candidates"), (LA3P(), "LA3P needs a draw for the critics and one for the actor")],
)
def test_hosts_that_draw_once_reject_them(config, message) -> None:
    with pytest.raises(UserError, match=message):
        Selection(config, capacity=8, seed=0)
