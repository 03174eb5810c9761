"""Separate draws for critics and actor against what they stand for: two samplers, each with its own networks' norms."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from aes_rl import Adaptive, LastValue, Naive, Predictive, Prioritized, Replay, Signals, Transition, Uniform
from aes_rl.agents import DDPG, SAC, make_agent
from aes_rl.errors import UserError
from aes_rl.replay.network_draws import NetworkDraws
from aes_rl.samplers import RULES
from aes_rl.samplers.sampler import Sampler
from aes_rl.samplers.uniform import UniformRule
from aes_rl.streams import Stream
from aes_rl.types import Signal

SEPARATE = {
    "predictive": Predictive(networks="separate", refresh_every=4),
    "adaptive": Adaptive(networks="separate", overwrite="fifo", forget_every=3),
    "last-value": LastValue(networks="separate"),
    "naive": Naive(networks="separate", updates_per_epoch=5),
}
MIXED = (Uniform(), SEPARATE["predictive"], Predictive(), SEPARATE["adaptive"], Prioritized())
BATCH = 6


def make_replay(configs, seeds=None, backend="numba", capacity=15, **options):
    seeds = range(len(configs)) if seeds is None else seeds
    sizes = {"observation_size": 3, "action_size": 2, "total_updates": 100}
    return Replay(configs, capacity=capacity, seeds=seeds, backend=backend, **sizes, **options)


def transition(members, seed, dtype=torch.float32):
    """The same transition for every member but for its number, so that a member's data are the same alone."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, 3), (1, 2), (1,), (1, 3), (1,)]
    return Transition(
        *(
            torch.randn(shape, generator=generator, dtype=dtype).repeat(members, *[1] * (len(shape) - 1))
            for shape in shapes
        )
    )


def norms_of(sample):
    """A learner whose norms are functions of the transitions, those of the actor on the actor's batch."""
    batch, actor = sample.batch, sample.actor.batch if sample.actor else sample.batch
    norms = {"critic": 100 * batch.reward.square(), "actor": actor.observation[..., 0].square() + 0.01}
    return Signals(batch.reward.abs(), norms | {"value": actor.observation[..., 1].square()})


def steps(replay, first, count):
    """Draws and weights of some updates with insertions between them."""
    seen = []
    for number in range(first, first + count):
        replay.add(transition(len(replay.streams.seeds), number))
        sample = replay.sample(BATCH)
        replay.feedback(sample.draw, norms_of(sample))
        replay.advance(number + 1)
        seen.append((sample.draw.slots.clone(), sample.weights.clone(), sample.actor))
    return seen


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("name", SEPARATE)
def test_it_equals_two_samplers_with_the_norms_of_their_networks(name, backend) -> None:
    """A twin: one Sampler that gets the critics' norms and one that gets the others', over the same slots."""
    replay = make_replay([SEPARATE[name]], [7], backend)
    own = NetworkDraws([SEPARATE[name]], [7], replay.sampler.backend)
    options = {"capacity": 15, "total_updates": 100, "backend": backend}
    twins = [Sampler([config], **options) for config in own.configs]
    rows = replay.storage.rows[0]
    for number in range(40):
        replay.add(transition(1, number))
        clock = twins[0].distribution.clock
        placed = own.streams.uniform(Stream.PLACE, clock, 2)
        uniforms = own.streams.uniform(Stream.DRAW, replay.draws, BATCH)
        sample = replay.sample(BATCH)
        assert sample.actor is not None
        signals = norms_of(sample)
        replay.feedback(sample.draw, signals)
        replay.advance(number + 1)
        critic, others = (
            {key: norm for key, norm in signals.gradient_norm.items() if (key == "critic") is is_critic}
            for is_critic in (True, False)
        )
        for row, (twin, norms) in enumerate(zip(twins, (critic, others), strict=True)):
            twin.place(placed[row : row + 1])
            draw = twin.draw(uniforms[row : row + 1])
            assert torch.equal(draw.slots[0], sample.draw.slots[row])
            batch, weights = (sample.batch, sample.weights) if row == 0 else (sample.actor.batch, sample.actor.weights)
            assert torch.allclose(weights, twin.weights(draw), rtol=1e-6)
            assert torch.equal(batch.observation[0], rows[draw.slots[0], :3])
            twin.feedback(draw, Signals(None, norms))
            twin.advance(number + 1)
            assert torch.allclose(twin.probabilities()[0], replay.sampler.probabilities()[row], rtol=1e-9)
    assert (sample.draw.slots[0] != sample.draw.slots[1]).any(), "both draws are the same"


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("member", range(len(MIXED)))
def test_a_member_draws_the_same_alone_and_among_others(member, backend) -> None:
    together, alone = make_replay(MIXED, backend=backend), make_replay([MIXED[member]], [member], backend)
    actor_row = together.network_draws.actor_members[member]
    for (slots, weights, actor), (own_slots, own_weights, own_actor) in zip(
        steps(together, 0, 40), steps(alone, 0, 40), strict=True
    ):
        assert torch.equal(slots[member], own_slots[0])
        assert torch.equal(slots[actor_row], own_slots[-1])
        assert torch.equal(weights[member], own_weights[0])
        expected = own_weights if own_actor is None else own_actor.weights
        assert torch.equal(actor.weights[member], expected[0])


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_saved_replay_continues_draw_for_draw(backend) -> None:
    one, other = (make_replay(MIXED, backend=backend, remembers_feedback=True) for _ in range(2))
    steps(one, 0, 25)
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for (slots, weights, actor), expected in zip(steps(other, 25, 20), steps(one, 25, 20), strict=True):
        assert torch.equal(slots, expected[0])
        assert torch.equal(weights, expected[1])
        assert torch.equal(actor.weights, expected[2].weights)


@pytest.mark.parametrize("config", [SAC(hidden=(8,)), SAC(hidden=(8,), value_function=True), DDPG(hidden=(8, 8))])
def test_every_gradient_is_unbiased_under_its_own_draw(config) -> None:
    """Σ_i p(i) · (weighted gradient at slot i) is the gradient of the uniform mean, each network under its own p."""
    slots = 10
    torch.set_default_dtype(torch.float64)
    try:
        replay = make_replay([SEPARATE["predictive"]], [3], capacity=slots, dtype=torch.float64)
        for number in range(slots):
            replay.add(transition(1, number, torch.float64))
        agent = make_agent(config, 3, 2, replay.streams)
        for number in range(30):
            sample = replay.sample(BATCH)
            replay.feedback(sample.draw, norms_of(sample))
            replay.advance(number + 1)
        noise = torch.randn(1, slots, agent.noise_size(1), generator=torch.Generator().manual_seed(1))
        everything = replay.read(torch.arange(slots)[None])
        agent.differentiate(everything, torch.ones(1, slots), noise.reshape(1, -1), None)
        expected = gradients(agent)
        found = {name: torch.zeros_like(gradient) for name, gradient in expected.items()}
        of_critic, of_actor = replay.sampler.probabilities()
        assert (of_critic - of_actor).abs().max() > 0.01, "the draws do not differ"
        for slot in range(slots):
            batch = replay.read(torch.tensor([[slot]]))
            critic_weight, actor_weight = (1 / (slots * p[slot]).view(1, 1) for p in (of_critic, of_actor))
            actor = type(sample.actor)(batch, actor_weight)
            agent.differentiate(batch, critic_weight, noise[:, slot].contiguous(), None, actor)
            for name, gradient in gradients(agent).items():
                found[name] += (of_critic if name == "critic" else of_actor)[slot] * gradient
    finally:
        torch.set_default_dtype(torch.float32)
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-9, atol=1e-12), name


def gradients(agent):
    """All gradients of a network as one vector; the temperature's too."""
    found = {name: torch.cat([p.grad.flatten() for p in net.parameters()]) for name, net in agent.trained().items()}
    if hasattr(agent, "log_temperature"):
        found["temperature"] = agent.log_temperature.grad.flatten().clone()
    return found


def sample_of_ten(configs, backend="numba"):
    """A full replay of ten slots, and a batch of four drawn from it."""
    replay = make_replay(configs, backend=backend, capacity=10)
    for number in range(10):
        replay.add(transition(len(configs), number))
    return replay, replay.sample(4)


def test_norms_of_critics_under_other_names_are_rejected() -> None:
    """They would count as the actor's, at the actor's slots."""
    replay, sample = sample_of_ten([SEPARATE["adaptive"]])
    before = replay.sampler.probabilities()
    norms = {"critic_1": torch.ones(1, 4), "critic_2": torch.ones(1, 4), "actor": torch.ones(1, 4)}
    with pytest.raises(UserError, match=r"norms of 'critic_1', 'critic_2', 'actor' were reported .* as 'critic'"):
        replay.feedback(sample.draw, Signals(None, norms))
    assert torch.equal(replay.sampler.probabilities(), before)


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (
            Signals(None, {"critic": torch.ones(3, 4), "actor": torch.ones(2, 4)}),
            r"gradient_norm\['critic'\] has shape \(3, 4\); the shape of its draw is \(2, 4\)",
        ),
        (
            Signals(torch.ones(2, 3), {"critic": torch.ones(2, 4), "actor": torch.ones(2, 4)}),
            r"td_error has shape \(2, 3\); the shape of its draw is \(2, 4\)",
        ),
        (
            Signals(None, {"critic": torch.ones(2, 4), "actor": torch.ones(2, 4, dtype=torch.int64)}),
            r"gradient_norm\['actor'\] has dtype torch.int64",
        ),
        (
            Signals(None, {"critic": torch.ones(2, 4), "actor": torch.ones(2, 4, requires_grad=True)}),
            r"gradient_norm\['actor'\] requires grad",
        ),
    ],
)
def test_errors_name_the_shapes_that_were_reported(signals, message) -> None:
    replay, sample = sample_of_ten([Uniform(), SEPARATE["predictive"]])
    with pytest.raises(UserError, match=message):
        replay.feedback(sample.draw, signals)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_errors_name_the_actors_draw(backend) -> None:
    replay, sample = sample_of_ten([Uniform(), SEPARATE["predictive"]], backend)
    norms = torch.ones(2, 4)
    norms[1, 2] = -1.0

    def feed_back_and_check():
        replay.feedback(sample.draw, Signals(None, {"critic": torch.ones(2, 4), "actor": norms}))
        replay.check()

    with pytest.raises(UserError, match="the actor's draw of member 1"):
        feed_back_and_check()


@dataclass(frozen=True)
class Following:
    """A sampler whose actor gets the critics' reports."""


@dataclass(frozen=True)
class FollowingOfActor(Following):
    """The same for the actor."""


class FollowingRule(UniformRule):
    config_type: ClassVar = Following
    actor_config_type: ClassVar = FollowingOfActor
    needs = Signal.GRADIENT_NORM

    def __init__(self, config, setting):
        del config
        self.setting, self.floor, self.overwrite = setting, 1.0, "fifo"


def test_an_actor_that_follows_the_critics_cannot_need_norms(monkeypatch) -> None:
    """The critics' slots have no norms of the actor."""
    monkeypatch.setitem(RULES, "following", FollowingRule)
    with pytest.raises(UserError, match=r"Following\(\) needs gradient norms and its actor gets the critics' reports"):
        make_replay([Following()])


@dataclass(frozen=True)
class Options:
    """A sampler whose options have the names of others' options and other meanings."""

    candidates: int = 5
    networks: str = "separate"
    of_actor: int = 3


class OptionsRule(UniformRule):
    config_type: ClassVar = Options

    def __init__(self, config, setting):
        del config
        self.setting, self.floor, self.overwrite = setting, 1.0, "fifo"


def test_options_count_by_declaration_and_not_by_name(monkeypatch) -> None:
    monkeypatch.setitem(RULES, "options", OptionsRule)
    _, sample = sample_of_ten([Options()])
    assert sample.draw.slots.shape == (1, 4)
    assert sample.actor is None


def test_random_overwriting_is_rejected() -> None:
    """Two draws that overwrite different slots would describe different buffers."""
    with pytest.raises(UserError, match="overwrite='fifo'"):
        Adaptive(networks="separate")
    with pytest.raises(UserError, match="'balanced', 'separate'"):
        Predictive(networks="both")
