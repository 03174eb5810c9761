"""Runs with samplers that look at candidates or draw for the actor alone, beside others."""

from dataclasses import replace

import pytest
import torch

from aes_rl.errors import UserError
from aes_rl.integrations.selection import Selection
from aes_rl.samplers.la3p import LA3P
from aes_rl.samplers.laber import LaBER
from aes_rl.streams import Stream
from aes_rl.training import RunState, memory, train
from aes_rl.training.loop import td_errors_of_candidates
from aes_rl.training.runner import _metrics_of
from aes_rl.training.vector.step_data import Sizes
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


def test_candidates_have_noise_of_their_own() -> None:
    """With the update's noise, the errors that choose would be those that are then trained on."""
    run = RunState(replace(RIVALS, samplers=("uniform",), env_steps=60))
    list(train(run))
    clock, batch = run.replay.streams.counter(0), run.replay.sample(5).batch
    noises = [run.streams.normal(s, clock, run.agent.noise_size(5)) for s in (Stream.CANDIDATES, Stream.UPDATE)]
    own, of_update = (run.agent.td_errors(batch, noise) for noise in noises)
    found = td_errors_of_candidates(run, clock, batch)
    run.close()
    assert torch.equal(found, own)
    assert not torch.allclose(found, of_update)


def test_logged_weights_are_those_of_all_losses() -> None:
    """With separate draws, the actor's weights differ from the critics'."""
    run = RunState(replace(RIVALS, samplers=("predictive:networks=separate,refresh_every=5",)))
    learned = [step.learned for step in train(run) if step.learned is not None][-1]
    run.close()
    critics, actors = learned.sample.weights, learned.sample.actor.weights
    (found,) = _metrics_of(learned)
    assert found["largest_weight"] == max(critics.max().item(), actors.max().item())
    assert found["smallest_weight"] == min(critics.min().item(), actors.min().item())


@pytest.mark.parametrize(("name", "factor"), [("predictive:networks=separate", 2), ("la3p", 2), ("uniform", 1)])
def test_memory_of_separate_draws(name, factor) -> None:
    small, large = (memory.needed(replace(RIVALS, samplers=(name,), capacity=n), Sizes(4, 1)) for n in (1000, 2000))
    assert large - small == 1000 * (4 * (2 * 4 + 1 + 2) + factor * 26)


def test_memory_of_candidates() -> None:
    few, one = (
        memory.needed(replace(RIVALS, samplers=(f"laber:candidates={count}",)), Sizes(4, 1)) for count in (8, 1)
    )
    batch = RIVALS.agent_config.batch_size * (4 * 11 + 4 * (5 + sum(RIVALS.agent_config.hidden) + 2))
    assert few - one == 16 * 7 * batch


def test_what_needs_one_probability_per_slot_is_rejected(tmp_path) -> None:
    """The message names the sampler that was given."""
    config = replace(RIVALS, samplers=("uniform", "laber:candidates=3"), measure_variance_every=50)
    with pytest.raises(UserError, match="'laber:candidates=3' has no fixed probability per slot"):
        finish(config, tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [(LaBER(), "LaBER chooses among candidates"), (LA3P(), "LA3P needs a draw for the critics and one for the actor")],
)
def test_hosts_that_draw_once_reject_them(config, message) -> None:
    with pytest.raises(UserError, match=message):
        Selection(config, capacity=8, seed=0)
