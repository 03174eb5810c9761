"""Bad input: one line that names the value, the limit and the fix, at once."""

import math

import pytest
import torch

from aes_rl import (
    Adaptive,
    Draw,
    FullInformation,
    Naive,
    Predictive,
    Prioritized,
    Replay,
    Sampler,
    Signals,
    Transition,
    Uniform,
    backends,
    configure,
)
from aes_rl.agents import SAC
from aes_rl.samplers.registry import rule_for
from aes_rl.streams import Stream, Streams

BAD_CONFIGURATIONS = [
    (lambda: Adaptive(floor=0.0), r"floor is 0.0; it must lie in \(0, 1\]"),
    (lambda: Adaptive(floor=1.5), r"floor is 1.5"),
    (lambda: Adaptive(floor=math.nan), r"floor is nan"),
    (lambda: Adaptive(nu=0.0), r"nu is 0.0; it must be a finite number above 0"),
    (lambda: Adaptive(nu="large"), r"nu is 'large'; it must be a number or \"auto\""),
    (lambda: Adaptive(retention=1.1), r"retention is 1.1; it must lie in \[0, 1\]"),
    (lambda: Adaptive(retention_end=-0.1), r"retention_end is -0.1"),
    (lambda: Adaptive(forget_every=0), r"forget_every is 0; it must be a whole number of at least 1"),
    (lambda: Naive(updates_per_epoch=0), r"updates_per_epoch is 0"),
    (lambda: Predictive(floor=0.0), r"floor is 0.0"),
    (lambda: Predictive(memory=0), r"memory is 0; it must be a whole number of at least 1"),
    (lambda: Predictive(refresh_every=0), r"refresh_every is 0"),
    (lambda: FullInformation(nu=-1.0), r"nu is -1.0"),
    (lambda: Prioritized(smallest_error=0.0), r"smallest_error is 0.0"),
    (lambda: Prioritized(priority_exponent=10.0), r"priority_exponent is 10.0; it must lie in \[0, 1\]"),
    (lambda: Uniform(overwrite="lifo"), r"overwrite is 'lifo'; it must be one of adaptive, uniform, fifo"),
    (lambda: Adaptive(networks="actor"), r"networks is 'actor'; give 'balanced', 'separate', a tuple of names"),
    (lambda: Adaptive(networks=()), r"networks is \(\)"),
    (lambda: Sampler([Uniform()], capacity=5, total_updates=0), r"total_updates is 0"),
    (lambda: Sampler([Uniform()], capacity=5, dtype=torch.float16), r"dtype is torch.float16; it must be one of"),
    (lambda: Prioritized(weight_exponent=2.0), r"weight_exponent is 2.0"),
    (lambda: configure("addaptive"), r"unknown sampler 'addaptive'; the samplers are uniform, prioritized, adaptive"),
    (lambda: configure("adaptive", kappa=0.1), r"sampler 'adaptive' has no option 'kappa'; its options are floor, nu"),
    (lambda: Sampler([Uniform()], capacity=0), r"capacity is 0; it must be a whole number of at least 1"),
    (lambda: Sampler([], capacity=5), r"no sampler was given"),
    (lambda: Sampler([Prioritized()], capacity=5), r"annealed over the run, whose length is unknown; give total_upd"),
    (lambda: Sampler([Adaptive(retention_end=0.2)], capacity=5), r"retention is annealed"),
    (
        lambda: Sampler([Uniform()], capacity=5, backend="jax"),
        r"unknown backend 'jax'; the backends are numba, torch, triton",
    ),
    (lambda: Sampler([Uniform()], capacity=5, backend="numba", device="cuda"), r"runs on the CPU, not on cuda"),
    (lambda: SAC(squashing_epsilon=-1e-7), r"squashing_epsilon is -1e-07"),
    (lambda: SAC(norm_metric="l2"), r"norm_metric is 'l2'"),
    (lambda: SAC(policy_regularization=-1.0), r"policy_regularization is -1.0"),
    (lambda: make_replay(seeds=[1, 2]), r"1 samplers and 2 seeds"),
    (lambda: make_replay(observation_size=0), r"observation_size is 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD_CONFIGURATIONS)
def test_bad_configuration(make, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_unregistered_configuration_is_named() -> None:
    with pytest.raises(TypeError, match="is not the configuration of a registered sampler"):
        rule_for(object())


def make_replay(config=None, backend="numba", capacity=8, seeds=(0,), **sizes):
    sizes = {"observation_size": 2, "action_size": 1} | sizes
    return Replay([config or Adaptive()], capacity=capacity, seeds=seeds, backend=backend, total_updates=10, **sizes)


def transition(value=0.5, size=2):
    return Transition(
        torch.full((1, size), value), torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, size), torch.zeros(1)
    )


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_sampling_an_empty_replay(backend) -> None:
    with pytest.raises(ValueError, match="cannot draw a batch of 4 from an empty replay; add a transition first"):
        make_replay(backend=backend).sample(4)


def test_batch_size_zero() -> None:
    replay = make_replay()
    replay.add(transition())
    with pytest.raises(ValueError, match="batch_size is 0"):
        replay.sample(0)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_field_of_the_wrong_shape(backend) -> None:
    with pytest.raises(ValueError, match=r"observation is \(1, 3\); this replay holds \(1, 2\)"):
        make_replay(backend=backend).add(transition(size=3))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_transition_that_is_not_finite_is_not_stored(value) -> None:
    replay = make_replay()
    replay.add(transition())
    with pytest.raises(ValueError, match="observation of member 0 is not finite"):
        replay.add(transition(value))
    assert len(replay) == 1
    late = make_replay(backend="torch")
    late.add(transition(value))
    with pytest.raises(ValueError, match="observation of member 0 was not finite at insertion 1"):
        late.check()


BAD_SIGNALS = [
    (Adaptive(), {"gradient_norm": {"critic": -1.0}}, "gradient_norm.*member 0 is -1.0 .*finite and at least 0"),
    (Adaptive(), {"gradient_norm": {"critic": math.nan}}, "member 0 is nan"),
    (Adaptive(), {"gradient_norm": {"actor": 1.0, "critic": math.inf}}, "'critic'.*member 0 is inf"),
    (Prioritized(), {"td_error": math.nan}, "td_error of member 0 is nan at position 3; it must be finite"),
]


@pytest.mark.parametrize(("config", "report", "message"), BAD_SIGNALS)
def test_a_bad_signal_never_reaches_the_masses(config, report, message) -> None:
    def signals(bad, count=4):
        def values(number):
            made = torch.ones(1, count)
            if bad:
                made[0, 3] = number
            return made

        made = {name: value for name, value in report.items() if name == "td_error"}
        norms = {name: values(number) for name, number in report.get("gradient_norm", {}).items()}
        return Signals(**{name: values(number) for name, number in made.items()}, gradient_norm=norms)

    for backend in ("numba", "torch"):
        replay = make_replay(config, backend)
        for _ in range(3):
            replay.add(transition())
        before = replay.sampler.probabilities()
        draw = replay.sample(4).draw
        if backend == "numba":
            with pytest.raises(ValueError, match=message):
                replay.feedback(draw, signals(bad=True))
            assert torch.equal(replay.sampler.probabilities(), before)
        else:
            replay.feedback(draw, signals(bad=True))
            twin = make_replay(config, backend)
            for _ in range(3):
                twin.add(transition())
            three = draw.slots[:, :3], draw.probabilities[:, :3]
            twin.feedback(Draw(*three, draw.size, draw.clock), signals(bad=False, count=3))
            assert torch.equal(replay.sampler.probabilities(), twin.sampler.probabilities())
            with pytest.raises(ValueError, match=r"member 0 reported a negative or non-finite signal"):
                replay.check()
        replay.feedback(draw, signals(bad=False))
        replay.check()


def test_signals_of_the_wrong_kind_or_shape() -> None:
    replay = make_replay()
    replay.add(transition())
    draw = replay.sample(4).draw
    with pytest.raises(ValueError, match="needs gradient norms, but none were reported"):
        replay.feedback(draw, Signals(td_error=torch.ones(1, 4)))
    with pytest.raises(
        ValueError, match=r"gradient_norm\['critic'\] has shape \(1, 3\); the shape of its draw is \(1, 4\)"
    ):
        replay.feedback(draw, Signals(gradient_norm={"critic": torch.ones(1, 3)}))
    with pytest.raises(ValueError, match="detach it before reporting it"):
        replay.feedback(draw, Signals(gradient_norm={"critic": torch.ones(1, 4, requires_grad=True)}))
    with pytest.raises(TypeError, match="use feedback, or the sampler 'full-information'"):
        replay.sampler.observe_all(torch.ones(1, 1))
    other = make_replay(Prioritized())
    other.add(transition())
    with pytest.raises(ValueError, match="needs TD errors, but none were reported"):
        other.feedback(other.sample(4).draw, Signals())
    picky = make_replay(Adaptive(networks=("value",)))
    picky.add(transition())
    with pytest.raises(ValueError, match="no gradient norm of network 'value' was reported, only critic"):
        picky.feedback(picky.sample(4).draw, Signals(gradient_norm={"critic": torch.ones(1, 4)}))
    full = make_replay(FullInformation())
    full.add(transition())
    with pytest.raises(ValueError, match=r"the signal is \(1, 2\); it must cover all live slots: \(1, 1\)"):
        full.sampler.observe_all(torch.ones(1, 2))
    with pytest.raises(ValueError, match="the signal of all slots of member 0 is nan"):
        full.sampler.observe_all(torch.full((1, 1), math.nan))


def test_a_state_of_another_capacity_or_sampler() -> None:
    state = make_replay(capacity=8).state_dict()
    with pytest.raises(ValueError, match=r"rows is \(1, 8, 7\), this replay's \(1, 9, 7\); make the replay with the"):
        make_replay(capacity=9).load_state_dict(state)
    with pytest.raises(ValueError, match=r"rows is \(1, 8, 7\), this replay's \(1, 8, 9\)"):
        make_replay(observation_size=3).load_state_dict(state)
    own = {name.removeprefix("sampler."): value for name, value in state.items() if name.startswith("sampler.")}
    with pytest.raises(ValueError, match=r"distribution.masses is \(1, 8\), this sampler's \(1, 9\); make the sampler"):
        Sampler([Adaptive()], capacity=9).load_state_dict(own)
    for other in (Uniform(), Naive()):
        with pytest.raises(ValueError, match="load it into what it was saved from"):
            make_replay(other).load_state_dict(state)
    with pytest.raises(ValueError, match=r"saved with seeds \[0\], not \(1,\)"):
        make_replay(seeds=[1]).load_state_dict(state)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_numbers_for_other_members(backend) -> None:
    """Compiled loops would read and write beyond their arrays."""
    sampler = Sampler([Adaptive()], capacity=4, backend=backend)
    streams = Streams([1, 2, 3], sampler.backend)
    with pytest.raises(ValueError, match="the uniforms are for 3 members; this sampler serves 1"):
        sampler.place(streams.uniform(Stream.PLACE, sampler.backend.counter(), 2))
    with pytest.raises(ValueError, match="the uniforms are for 3 members"):
        sampler.draw(streams.uniform(Stream.DRAW, sampler.backend.counter(), 2))
    with pytest.raises(ValueError, match="3 uniforms per member were given"):
        sampler.place(Streams([1], sampler.backend).uniform(Stream.PLACE, sampler.backend.counter(), 3))


def test_a_draw_of_another_sampler() -> None:
    small, large = make_replay(capacity=2), make_replay(capacity=8)
    for replay in (small, large, large, large):
        replay.add(transition())
    with pytest.raises(ValueError, match="another sampler"):
        small.feedback(large.sample(4).draw, Signals(gradient_norm={"critic": torch.ones(1, 4)}))


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_numbers_that_float32_cannot_hold(backend) -> None:
    replay = make_replay(backend=backend)
    large = transition()._replace(reward=torch.tensor([1e300], dtype=torch.float64))

    def store_and_check():
        replay.add(large)
        replay.check()

    with pytest.raises(ValueError, match="reward of member 0"):
        store_and_check()
    replay = make_replay(backend=backend)
    replay.add(transition())
    draw = replay.sample(4).draw
    norms = torch.full((1, 4), 3e38)
    replay.feedback(draw, Signals(gradient_norm={"actor": norms, "critic": norms}))
    assert bool(replay.sampler.probabilities().isfinite().all())


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_an_undetached_transition(backend) -> None:
    with pytest.raises(TypeError, match="reward is a list; pass a tensor or a NumPy array"):
        make_replay(backend=backend).add(transition()._replace(reward=[0.0]))
    with pytest.raises(ValueError, match="action requires grad; detach it"):
        make_replay(backend=backend).add(transition()._replace(action=torch.zeros(1, 1, requires_grad=True)))


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_more_transitions_at_once_than_fit(backend) -> None:
    sampler = Sampler([Adaptive()], capacity=4, backend=backend)
    uniforms = torch.full((1, 8), 0.5, dtype=torch.float64)
    with pytest.raises(ValueError, match="4 transitions at once do not fit a capacity of 4; place at most 3"):
        sampler.place(uniforms if backend == "torch" else uniforms.numpy())


def test_a_backend_that_is_not_installed(monkeypatch) -> None:
    monkeypatch.setattr("aes_rl.backends.choice.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="backend 'triton' needs the package triton"):
        backends.choose("triton", "cpu")
    assert backends.choose(None, "cpu").name == "numba"
