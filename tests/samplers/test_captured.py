"""The rules for captured code, without a GPU: what a CUDA graph would replay equals what runs eagerly.

The whole step draw → read → weights → feedback is recorded with `make_fx` as a list of tensor operations. Replaying it
must move the state exactly as the Python code does, and no operation in it may depend on data for its shape, read a
tensor on the host, or make one from a Python number.
"""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aes_rl import (
    Adaptive,
    FullInformation,
    LastValue,
    Naive,
    Predictive,
    Prioritized,
    Replay,
    Signals,
    Transition,
    Uniform,
)
from aes_rl.samplers.la3p import LA3P
from aes_rl.samplers.laber import LaBER
from aes_rl.samplers.lap import LAP
from aes_rl.samplers.roer import ROER

SAMPLERS = {
    "uniform": [Uniform()] * 2,
    "prioritized": [Prioritized()] * 2,
    "adaptive": [Adaptive(forget_every=3)] * 2,
    "adaptive, own nu": [Adaptive(nu="auto", forget_every=3)] * 2,
    "adaptive, actor only": [Adaptive(networks=("actor",))] * 2,
    "predictive": [Predictive(refresh_every=3)] * 2,
    "predictive, deviation": [Predictive(forecast="deviation", refresh_every=3)] * 2,
    "predictive, mean and last": [Predictive(forecast="mean-and-last", refresh_every=3)] * 2,
    "predictive, balanced": [Predictive(networks="balanced")] * 2,
    "separate draws": [Predictive(networks="separate", refresh_every=3)] * 2,
    "last value": [LastValue()] * 2,
    "lap": [LAP()] * 2,
    "roer": [ROER()] * 2,
    "laber, mixed": [Prioritized(), LaBER(candidates=3), Predictive(networks="separate"), LaBER(candidates=2)],
    "la3p, mixed": [LA3P(), Prioritized()],
    "naive": [Naive()] * 2,
    "full-information": [FullInformation()] * 2,
    "mixed": [Uniform(), Prioritized(), Adaptive(), Adaptive()],
    "mixed draws": [Prioritized(), Predictive(networks="separate"), Predictive()],
}


def make_replay(configs, capacity=50):
    return Replay(
        configs,
        capacity=capacity,
        observation_size=3,
        action_size=2,
        seeds=range(len(configs)),
        total_updates=1000,
        backend="torch",
    )


def transition(members, seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(members, 3), (members, 2), (members,), (members, 3), (members,)]
    return Transition(*(torch.rand(shape, generator=generator) for shape in shapes))


def step(replay):
    """One update's worth of replay; the learner is a fixed function of the batch."""
    batch, draw, weights, actor = replay.sample(8, lambda candidates: candidates.reward)
    norms = batch.reward.square() * (weights if actor is None else actor.weights)
    replay.feedback(draw, Signals(td_error=batch.reward, gradient_norm={"actor": norms, "critic": 100 * norms}))
    return batch.rows, draw.slots, draw.probabilities, weights


def state(replay):
    return {name: value.clone() for name, value in replay.state_dict().items()}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_recorded_update_equals_eager(kind) -> None:
    eager, recorded = make_replay(SAMPLERS[kind]), make_replay(SAMPLERS[kind])
    for seed in range(70):
        for replay in (eager, recorded):
            replay.add(transition(len(SAMPLERS[kind]), seed))
    before = state(recorded)
    graph = make_fx(lambda: step(recorded))()
    recorded.load_state_dict(before)  # recording ran the step once
    for seed in range(10):
        expected, found = step(eager), graph()
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one, other)
        for replay in (eager, recorded):
            replay.add(transition(len(SAMPLERS[kind]), 100 + seed))
            replay.advance(seed + 1)
    for name, value in eager.state_dict().items():
        assert torch.equal(value, recorded.state_dict()[name]), name
    eager.check()


@pytest.mark.parametrize("overwrite", ["adaptive", "uniform", "fifo"])
def test_recorded_insertion_equals_eager(overwrite) -> None:
    """One recording serves the empty, the growing and the full buffer."""
    configs = [Adaptive(overwrite=overwrite), Prioritized(overwrite=overwrite)]
    eager, recorded = make_replay(configs, 20), make_replay(configs, 20)
    before = state(recorded)
    slot = transition(2, 0)
    graph = make_fx(lambda t: recorded.add(t))(slot)
    assert_capturable(graph)
    recorded.load_state_dict(before)
    for seed in range(60):
        eager.add(transition(2, seed))
        graph(transition(2, seed))
    for name, value in eager.state_dict().items():
        assert torch.equal(value, recorded.state_dict()[name]), name


@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_operation_depends_on_data(kind) -> None:
    replay = make_replay(SAMPLERS[kind])
    replay.add(transition(len(SAMPLERS[kind]), 0))
    assert_capturable(make_fx(lambda: step(replay))())


def assert_capturable(graph) -> None:
    operations = [node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert operations
    for operation in operations:
        assert torch.Tag.data_dependent_output not in operation.tags, operation
        assert torch.Tag.dynamic_output_shape not in operation.tags, operation
        assert operation is not torch.ops.aten.lift_fresh_copy.default, "a tensor made from a Python number"


def test_the_guard_itself_finds_a_data_dependent_operation() -> None:
    with pytest.raises(AssertionError):
        assert_capturable(make_fx(lambda x: x.nonzero())(torch.ones(3)))
    with pytest.raises(AssertionError):
        assert_capturable(make_fx(lambda x: x + torch.tensor(3.0))(torch.ones(3)))
