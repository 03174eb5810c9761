"""LaBER: the choice among candidates in plain Python, its unbiasedness, and the TD errors that agents give."""

import pytest
import torch

from aes_rl import LastValue, Predictive, Prioritized, Replay, Signals, Transition, Uniform
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.errors import UserError
from aes_rl.samplers.laber import LaBER
from aes_rl.streams import Stream
from aes_rl.testing.statistics import FALSE_ALARM, mean_p_value

BATCH = 5


def make_replay(configs, seeds=None, backend="numba", capacity=12):
    """Every slot's reward is its number plus one."""
    seeds = range(len(configs)) if seeds is None else seeds
    options = {"observation_size": 3, "action_size": 2, "total_updates": 100, "backend": backend}
    replay = Replay(configs, capacity=capacity, seeds=seeds, **options)
    generator, members = torch.Generator().manual_seed(0), len(configs)
    for slot in range(capacity):
        shapes = [(1, 3), (1, 2), (1,), (1, 3), (1,)]
        parts = [torch.rand(s, generator=generator).repeat(members, *[1] * (len(s) - 1)) for s in shapes]
        replay.add(Transition(*parts)._replace(reward=torch.full((members,), slot + 1.0)))
    return replay


def sizes_of(candidates):
    """Numbers over three orders of magnitude, some of them zero."""
    return (candidates.reward - 3).clamp(min=0) ** 3


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_choice_among_candidates(backend) -> None:
    """A twin that walks along the candidates until their sizes add up to the share of the total."""
    replay = make_replay([LaBER(candidates=4), LaBER(candidates=3)], backend=backend)
    seen = []
    for number in range(20):
        sample = replay.sample(BATCH, lambda batch: (seen.append(batch), sizes_of(batch))[1])
        clock = replay.streams.counter(number)
        uniforms = torch.as_tensor(replay.streams.uniform(Stream.CHOICE, clock, BATCH)).tolist()
        assert sample.actor is not None
        for member, count in enumerate((4, 3)):
            rewards = seen[-1].reward[member].tolist()[: count * BATCH]
            sizes = [max(reward - 3, 0) ** 3 for reward in rewards]
            for position, uniform in enumerate(uniforms[member]):
                rest, place = uniform * sum(sizes), 0
                while rest > sizes[place]:
                    rest -= sizes[place]
                    place += 1
                assert sample.batch.reward[member, position] == rewards[place]
                assert sample.draw.slots[member, position] == rewards[place] - 1
                mean = sum(sizes) / len(sizes)
                assert sample.weights[member, position].item() == pytest.approx(mean / sizes[place], rel=1e-5)
            assert sample.actor.batch.reward[member].tolist() == rewards[:BATCH]
            assert sample.actor.weights[member].tolist() == [1.0] * BATCH


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_weighted_mean_is_unbiased(backend) -> None:
    """Independent members with one draw each, since the draws of a batch share their candidates."""
    replay = make_replay([LaBER(candidates=3)] * 2000, backend=backend)
    values = torch.sin(7.0 * torch.arange(1, 13)) * torch.arange(1, 13)
    found = []
    for _ in range(5):
        sample = replay.sample(1, lambda batch: 0.1 + sizes_of(batch))
        found.append((values[sample.draw.slots] * sample.weights).flatten())
    assert mean_p_value(torch.cat(found).double(), float(values.mean())) > FALSE_ALARM


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_member_draws_the_same_alone_and_beside_others(backend) -> None:
    """Including members without candidates and members with separate draws."""
    mixed = [Prioritized(), LaBER(candidates=3), Predictive(networks="separate"), LaBER(candidates=2), LastValue()]
    together = make_replay(mixed, backend=backend)
    alone = [make_replay([config], [seed], backend) for seed, config in enumerate(mixed)]
    for number in range(10):
        samples = [replay.sample(BATCH, sizes_of) for replay in (together, *alone)]
        for replay, sample in zip((together, *alone), samples, strict=True):
            actor = sample.actor.batch if sample.actor else sample.batch
            norms = {"critic": sample.batch.reward.square(), "actor": actor.reward}
            replay.feedback(sample.draw, Signals(sample.batch.reward, norms))
            replay.advance(number + 1)
        for member, own in enumerate(samples[1:]):
            assert torch.equal(samples[0].batch.rows[member], own.batch.rows[0])
            assert torch.allclose(samples[0].weights[member], own.weights[0], rtol=1e-6)
            actor = own.actor.batch if own.actor else own.batch
            assert torch.equal(samples[0].actor.batch.rows[member], actor.rows[0])


def test_one_candidate_is_uniform_replay() -> None:
    one, other = make_replay([LaBER(candidates=1)]), make_replay([Uniform()])
    assert torch.equal(one.sample(BATCH).draw.slots, other.sample(BATCH).draw.slots)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_without_usable_numbers_all_candidates_are_alike(value) -> None:
    sample = make_replay([LaBER()]).sample(BATCH, lambda batch: torch.full_like(batch.reward, value))
    assert torch.allclose(sample.weights, torch.ones(1, BATCH))


@pytest.mark.parametrize(
    ("surrogate", "message"),
    [
        (lambda batch: batch.reward.numpy(), r"is a ndarray; return a tensor of shape \(1, 20\)"),
        (lambda batch: batch.reward[:, :3], r"has shape \(1, 3\); the shape of its draw is \(1, 20\)"),
        (lambda batch: batch.reward.unsqueeze(-1), r"has shape \(1, 20, 1\)"),
        (lambda batch: batch.reward.long(), r"has dtype torch.int64; report it as float32 or float64"),
        (lambda batch: batch.reward * torch.ones(1, requires_grad=True), "requires grad; detach it"),
    ],
)
@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_unusable_surrogates_are_rejected(surrogate, message, backend) -> None:
    replay = make_replay([LaBER()], backend=backend)
    with pytest.raises(UserError, match=f"the surrogate {message}"):
        replay.sample(BATCH, surrogate)


def test_negative_surrogates_are_rejected() -> None:
    """Signed TD errors would bias the choice: half of the candidates would have no chance."""
    replay = make_replay([Uniform(), LaBER()])
    with pytest.raises(UserError, match=r"the surrogate of member 0 is -\d\.0 at position \d+; it must be at least 0"):
        replay.sample(BATCH, lambda batch: batch.reward - 8)


def test_negative_surrogates_are_noticed_later_where_reading_them_stalls() -> None:
    replay = make_replay([Uniform(), LaBER()], backend="torch")
    replay.sample(BATCH, sizes_of)
    replay.check()
    replay.sample(BATCH, lambda batch: batch.reward - torch.tensor([[0.0], [8.0]]))
    replay.sample(BATCH, sizes_of)
    with pytest.raises(UserError, match=r"the surrogate of members \[1\] had negative values"):
        replay.check()
    replay.check()


def test_it_needs_the_learner() -> None:
    with pytest.raises(UserError, match=r"chooses among candidates by their TD errors; give sample\(batch_size, surr"):
        make_replay([LaBER()]).sample(BATCH)


AGENTS = {
    "sac": SAC(hidden=(16, 16), reward_scale=3.0),
    "sac, value function": SAC(hidden=(16, 16), value_function=True),
    "ddpg": DDPG(hidden=(16, 16)),
}


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("name", AGENTS)
def test_the_errors_of_candidates_are_those_of_an_update(name, backend) -> None:
    replay = make_replay([Uniform(), Uniform()], backend=backend)
    agent = make_agent(AGENTS[name], 3, 2, replay.streams, replay.sampler.backend)
    for number in range(3):  # the target networks differ from the trained ones after an update
        batch, _, weights, _ = replay.sample(BATCH)
        clock = replay.streams.counter(number)
        noise = replay.streams.normal(Stream.UPDATE, clock, agent.noise_size(BATCH))
        errors = agent.td_errors(batch, noise)
        assert not errors.requires_grad
        update = agent.update(batch, weights, noise, None)
        assert torch.allclose(errors, update.signals.td_error, rtol=1e-4, atol=1e-5)
