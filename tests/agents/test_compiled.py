"""The compiled update on the CPU against its reference, the readable agent: every option, batch size and population."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from aes_rl import backends
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.agents.compiled import products
from aes_rl.agents.compiled.agent import CompiledAgent
from aes_rl.streams import Streams
from aes_rl.types import ActorBatch, Batch

OBSERVATION, ACTION = 11, 3
EVERYBODY = slice(None)
SMALL = (24, 16)
CONFIGS = {
    "ddpg": DDPG(hidden=SMALL),
    "ddpg, action first": DDPG(hidden=SMALL, critic_action_layer=0),
    "ddpg, one layer": DDPG(hidden=(16,)),
    "ddpg, three layers": DDPG(hidden=(16, 24, 8)),
    "ddpg, large decay": DDPG(hidden=SMALL, critic_weight_decay=0.1, target_rate=0.1),
    "sac": SAC(hidden=SMALL),
    "sac, one layer": SAC(hidden=(16,)),
    "sac, three layers": SAC(hidden=(16, 24, 8)),
    "sac with value": SAC(hidden=SMALL, value_function=True),
    "sac, regularized": SAC(hidden=SMALL, policy_regularization=0.1, reward_scale=2.0, target_entropy=-1.0),
    "sac with an epsilon": SAC(hidden=SMALL, squashing_epsilon=0.1),
    "sac, fixed temperature": SAC(hidden=SMALL, entropy_tuning=False, initial_entropy_coefficient=0.2),
}
ALL = CONFIGS | {f"{name}, critic first": replace(config, critic_first=True) for name, config in CONFIGS.items()}


def pair_of(config, members, action_size=ACTION):
    backend = backends.choose("numba", "cpu")
    sizes = (OBSERVATION, action_size, Streams(range(members), backend))
    compiled = make_agent(config, *sizes, backend)
    assert isinstance(compiled, CompiledAgent)
    return make_agent(config, *sizes), compiled


def data(agent, members, batch, seed, action_size=ACTION):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(members, batch, 2 * OBSERVATION + action_size + 2, generator=generator)
    rows[..., OBSERVATION : OBSERVATION + action_size].tanh_()
    rows[..., -1] = (rows[..., -1] > 1).float()
    weights = 0.2 + 2 * torch.rand(members, batch, generator=generator)
    noise = torch.randn(members, agent.noise_size(batch), generator=generator)
    return Batch(rows, OBSERVATION, action_size), weights, noise


def assert_agree(found, expected):
    """The difference is at most 1e-5 of the whole tensor's norm."""
    assert found.shape == expected.shape
    assert (found - expected).norm() <= 1e-5 * expected.norm() + 1e-12


def assert_norms_agree(found, expected):
    """As `assert_agree`, but for a hundredth of the samples: where a ReLU's input is a rounding error from zero."""
    difference = (found - expected).abs().flatten()
    assert (difference > 1e-5 * expected.norm()).sum() <= 0.01 * len(difference) + 1
    assert difference.norm() <= 1e-4 * expected.norm()


def assert_same_updates(
    reference, compiled, members, batch, updates, norm_members=EVERYBODY, action_size=ACTION, has_actor_batch=False
):
    for number in range(updates):
        given = data(reference, members, batch, number, action_size)
        own = ActorBatch(*data(reference, members, batch, 1000 + number, action_size)[:2]) if has_actor_batch else None
        expected, found = (agent.update(*given, norm_members, own) for agent in (reference, compiled))
        assert list(found.losses) == list(expected.losses)
        for name, loss in expected.losses.items():
            assert torch.allclose(found.losses[name], loss, rtol=1e-5, atol=1e-6)  # terms of both signs may cancel
        assert_agree(found.signals.td_error, expected.signals.td_error)
        assert found.signals.gradient_norm.keys() == expected.signals.gradient_norm.keys()
        for name, norm in expected.signals.gradient_norm.items():
            assert_norms_agree(found.signals.gradient_norm[name], norm)
    expected, found = by_part(reference), by_part(compiled)
    for name, value in expected.items():
        assert_agree(found[name], value)


def by_part(agent):
    """The state as one vector per network and per kind of the optimiser's state: a single bias may be close to 0."""
    parts = {}
    for name, value in agent.state_dict().items():
        kind = ".".join(name.split(".")[:2]) if "optimiser" in name else name.split(".")[0]
        parts.setdefault(kind, []).append(value.flatten())
    return {kind: torch.cat(values) for kind, values in parts.items()}


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_twenty_updates_agree_with_the_reference(name, members) -> None:
    reference, compiled = pair_of(ALL[name], members)
    assert_same_updates(reference, compiled, members, 16, 20)


@pytest.mark.parametrize("name", ALL)
def test_updates_with_a_batch_of_the_actors_own_agree(name) -> None:
    reference, compiled = pair_of(ALL[name], 2)
    assert_same_updates(reference, compiled, 2, 16, 20, has_actor_batch=True)


@pytest.mark.parametrize("by_numpy", [False, True])
@pytest.mark.parametrize(("name", "batch"), [("ddpg", 64), ("sac", 64), ("sac", 256), ("sac with value", 64)])
def test_large_batches_and_networks_agree(name, batch, by_numpy, monkeypatch) -> None:
    """Sums of many terms, and the sizes of real runs, in which matrix products take other code, in both libraries."""
    monkeypatch.setattr(products, "is_by_numpy", lambda: by_numpy)
    reference, compiled = pair_of(replace(ALL[name], hidden=(256, 256)), 1)
    assert_same_updates(reference, compiled, 1, batch, 20)


@pytest.mark.parametrize("name", ["ddpg", "sac"])
@pytest.mark.parametrize("members", [None, slice(1, 2), slice(0, 2)])
def test_norms_are_computed_for_some_members(name, members) -> None:
    reference, compiled = pair_of(ALL[name], 3)
    assert_same_updates(reference, compiled, 3, 8, 3, members)


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_one_action_and_another_batch_size(name) -> None:
    """An actor with one output takes the path of the critics; the program is made again for another batch size."""
    reference, compiled = pair_of(ALL[name], 2, 1)
    for batch in (8, 5, 8):
        assert_same_updates(reference, compiled, 2, batch, 2, action_size=1)


def test_products_by_numpy_take_one_thread() -> None:
    """In a process of its own: another test may have limited the threads before."""
    program = """
import torch
from threadpoolctl import ThreadpoolController
from aes_rl.agents.compiled import products

def threads():
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}

torch.set_num_threads(2)
assert not products.is_by_numpy()
assert threads() == {2}, threads()
products.is_by_numpy = lambda: True
products.product(*(torch.ones(1, 2, 2) for _ in range(3)))
assert threads() == {1}, threads()
"""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_exploring_actions_agree(name) -> None:
    reference, compiled = pair_of(ALL[name], 3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        given = torch.randn(3, OBSERVATION, generator=generator), torch.randn(3, ACTION, generator=generator)
        assert_agree(compiled.act(*given), reference.act(*given))
        ended = torch.tensor([0.0, 1.0, 0.0])
        for agent in (reference, compiled):
            agent.end_episode(ended)


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_norms_in_another_metric_come_from_the_reference(name) -> None:
    reference, compiled = pair_of(ALL[name], 2)
    assert_same_updates(reference, compiled, 2, 8, 3)
    reference.norm_metric = compiled.norm_metric = "adam"
    assert_same_updates(reference, compiled, 2, 8, 1)
    reference.norm_metric = compiled.norm_metric = "euclidean"
    assert_same_updates(reference, compiled, 2, 8, 2)


@pytest.mark.parametrize("name", ["ddpg", "sac, critic first", "sac with value"])
def test_a_loaded_agent_continues_bit_for_bit(name) -> None:
    _, one = pair_of(ALL[name], 2)
    _, other = pair_of(ALL[name], 2)
    for number in range(3):
        one.update(*data(one, 2, 8, number), EVERYBODY)
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for number in range(3, 6):
        found, expected = (agent.update(*data(one, 2, 8, number), EVERYBODY) for agent in (other, one))
        assert torch.equal(found.signals.td_error, expected.signals.td_error)
    for key, value in one.state_dict().items():
        assert torch.equal(other.state_dict()[key], value)


def test_results_of_an_update_are_not_overwritten_by_the_next() -> None:
    _, compiled = pair_of(ALL["sac"], 1)
    first = compiled.update(*data(compiled, 1, 8, 0), EVERYBODY)
    before = [first.signals.td_error.clone(), *(norm.clone() for norm in first.signals.gradient_norm.values())]
    losses = {name: loss.clone() for name, loss in first.losses.items()}
    compiled.update(*data(compiled, 1, 8, 1), EVERYBODY)
    assert torch.equal(first.signals.td_error, before[0])
    for norm, expected in zip(first.signals.gradient_norm.values(), before[1:], strict=True):
        assert torch.equal(norm, expected)
    assert all(torch.equal(first.losses[name], loss) for name, loss in losses.items())


def test_equal_values_of_both_critics_share_the_actors_gradient() -> None:
    """As `amin` does; where the critics agree exactly, as right after copying one into the other."""
    reference, compiled = pair_of(ALL["sac"], 1)
    for agent in (reference, compiled):
        for parameter in agent.trained()["critic"].parameters():
            parameter.data[1] = parameter.data[0]
    assert_same_updates(reference, compiled, 1, 8, 1)


def test_double_precision_runs_the_reference() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        backend = backends.choose("numba", "cpu")
        agent = make_agent(ALL["sac"], OBSERVATION, ACTION, Streams([0], backend), backend)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not isinstance(agent, CompiledAgent)
