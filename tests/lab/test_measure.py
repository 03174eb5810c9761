"""The yardstick against what it claims to measure: the variance of real mini-batch gradients."""

import numpy as np
import pytest
import torch

from aes_rl import Adaptive, Prioritized, Replay, Signals, Transition, Uniform
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.errors import UserError
from aes_rl.lab.empirical import compare
from aes_rl.lab.measure import expected_norms, measure
from aes_rl.lab.variance import best_with_floor, captured_fraction
from aes_rl.samplers.laber import LaBER

OBSERVATION, ACTION, SLOTS, BATCH = 3, 2, 40, 4
AGENTS = {"sac": SAC(hidden=(8, 8), batch_size=BATCH), "ddpg": DDPG(hidden=(8, 8), batch_size=BATCH)}
SAMPLERS = {"uniform": Uniform(), "prioritized": Prioritized(), "adaptive": Adaptive(nu=1.0)}
SEPARATE = {"separate draws": Adaptive(nu=1.0, networks="separate", overwrite="fifo")}


def setting(agent, sampler, slots=SLOTS, updates=60):
    """A replay and an agent that have learned a little, so that the masses differ."""
    replay = Replay(
        [(SAMPLERS | SEPARATE)[sampler]],
        capacity=slots,
        observation_size=OBSERVATION,
        action_size=ACTION,
        seeds=[0],
        total_updates=1000,
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(slots):
        shapes = [(1, OBSERVATION), (1, ACTION), (1,), (1, OBSERVATION), (1,)]
        fields = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        fields[2] = 5 * fields[2].exp()
        fields[4] = (fields[4] > 1).double()
        replay.add(Transition(*fields))
    learner = make_agent(AGENTS[agent], OBSERVATION, ACTION, replay.streams)
    for update in range(1, updates):
        sample = replay.sample(BATCH)
        noise = torch.randn(1, learner.noise_size(BATCH), generator=generator)
        report = learner.update(sample.batch, sample.weights, noise, slice(None), sample.actor)
        replay.feedback(sample.draw, Signals(report.signals.td_error, report.signals.gradient_norm))
        replay.advance(update)
    return learner, replay


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("sampler", SAMPLERS | SEPARATE)
@pytest.mark.parametrize("agent", AGENTS)
def test_the_formula_is_the_variance_of_drawn_gradients(agent, sampler) -> None:
    """(f(p)/n² − ‖ḡ‖²)/|Ψ| against 3,000 pairs of batches weighted by 1/(n·p), within a 99.9 % bootstrap interval."""
    learner, replay = setting(agent, sampler)
    (found,) = compare(learner, replay, BATCH, pairs=3000, noise_samples=400, confidence=0.999)
    assert found.low < found.formula < found.high, found
    assert found.formula * BATCH / (BATCH + 1) < found.low, "the interval cannot tell a batch of 4 from one of 5"


@pytest.mark.parametrize("agent", AGENTS)
def test_norms_in_adams_metric(agent) -> None:
    """Each sample's own gradient, squared, times the metric, summed over all parameters."""
    learner, replay = setting(agent, "adaptive", slots=6)
    found = expected_norms(learner, replay, np.arange(6), noise_samples=1, metric="adam", seed=3).total
    noise = torch.randn(1, learner.noise_size(6), generator=torch.Generator().manual_seed(3))
    draws = noise.view(1, 6, -1)
    for slot in range(6):
        batch = replay.storage.read(np.array([[slot]]))
        learner.differentiate(batch, torch.ones(1, 1), draws[:, slot].contiguous(), None)
        total = 0.0
        for name, network in learner.trained().items():
            scales = [scale for pair in learner.metric()[name] for scale in pair]
            for parameter, scale in zip(network.parameters(), scales, strict=True):
                total += (parameter.grad.square() * scale).sum().item()
        assert found[0, slot].item() == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_reading_of_all_slots(sampler) -> None:
    learner, replay = setting("ddpg", sampler)
    (reading,) = measure(learner, replay, BATCH)
    norms = expected_norms(learner, replay, np.arange(SLOTS), 1).total
    expected = captured_fraction(norms, replay.sampler.probabilities()).item()
    assert reading.captured_fraction == pytest.approx(expected, abs=1e-12)
    assert reading.captured_low == reading.captured_high == reading.captured_fraction
    assert set(reading.by_network) == {"actor", "critic"}
    weights = 1 / (SLOTS * replay.sampler.probabilities())
    assert reading.largest_unbiased_weight == pytest.approx(weights.max().item())
    floor = float(replay.sampler.distribution.floor)
    assert reading.ceiling == pytest.approx(captured_fraction(norms, best_with_floor(norms, floor)).item(), abs=1e-9)
    of_mean = expected_norms(learner, replay, np.arange(SLOTS), 1).of_mean.item()
    uniform = norms.mean().item() - of_mean
    own = (norms / replay.sampler.probabilities()).sum().item() / SLOTS**2 - of_mean
    assert reading.effective_batch_size == pytest.approx(BATCH * uniform / own)
    assert reading.variance == pytest.approx(own / BATCH)
    if sampler == "uniform":
        assert reading.captured_fraction == pytest.approx(0, abs=1e-9)
        assert reading.effective_batch_size == pytest.approx(BATCH)
        assert reading.ceiling == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_reading_of_separate_draws(agent) -> None:
    """Every network under its own draw; costs are sums over the draws."""
    learner, replay = setting(agent, "separate draws")
    (reading,) = measure(learner, replay, BATCH, noise_samples=2)
    norms = expected_norms(learner, replay, np.arange(SLOTS), 2)
    critic, actor = replay.sampler.probabilities()
    own = dict.fromkeys(norms.by_network, actor) | {"critic": critic}
    for name, norm in norms.by_network.items():
        expected = captured_fraction(norm[0], own[name]).item()
        assert reading.by_network[name] == pytest.approx(expected, abs=1e-12)
    costs = sum((norm[0] / own[name]).sum().item() for name, norm in norms.by_network.items()) / SLOTS**2
    assert reading.variance == pytest.approx((costs - norms.of_mean.item()) / BATCH)
    assert reading.captured_fraction < reading.ceiling <= 1


def test_subsamples_cover_the_exact_value() -> None:
    """Intervals of 95 %: at least 85 of 100 subsamples must hold the exact value, and on average they are right."""
    learner, replay = setting("ddpg", "adaptive", slots=400, updates=300)
    (exactly,) = measure(learner, replay, BATCH)
    readings = [measure(learner, replay, BATCH, slots=150, seed=seed)[0] for seed in range(100)]
    covered = [r.captured_low <= exactly.captured_fraction <= r.captured_high for r in readings]
    assert sum(covered) >= 85
    batches = [r.effective_batch_size for r in readings]
    assert np.median(batches) == pytest.approx(exactly.effective_batch_size, rel=0.1)
    assert np.median([r.captured_fraction for r in readings]) == pytest.approx(exactly.captured_fraction, abs=0.1)


def test_a_sampler_that_chooses_among_candidates_is_rejected() -> None:
    """Its first stage is uniform, and a reading of it would be that of uniform draws."""
    learner, _ = setting("sac", "uniform", updates=1)
    replay = Replay([LaBER()], capacity=3, observation_size=OBSERVATION, action_size=ACTION, seeds=[0])
    one = torch.ones(1)
    replay.add(Transition(one.expand(1, OBSERVATION), one.expand(1, ACTION), one, one.expand(1, OBSERVATION), one))
    with pytest.raises(UserError, match=r"LaBER.* has no fixed probability per slot to measure"):
        measure(learner, replay, BATCH)


def test_measuring_disturbs_nothing() -> None:
    learner, replay = setting("sac", "adaptive")
    before = {**learner.state_dict(), **replay.state_dict()}
    before = {name: value.clone() for name, value in before.items()}
    measure(learner, replay, BATCH, slots=20)
    measure(learner, replay, BATCH, metric="adam")
    after = {**learner.state_dict(), **replay.state_dict()}
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert learner.norm_metric == "euclidean"
    assert all(network.metric is None for network in learner.trained().values())
