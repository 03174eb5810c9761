"""What SPEC says of AES in particular: S5 to S11 with numbers worked out by hand."""

import math

import pytest
import torch

from aes_rl import Adaptive, FullInformation, Naive, Sampler, Signals
from aes_rl.lab.variance import captured_fraction
from aes_rl.streams import Stream, Streams
from aes_rl.testing.statistics import FALSE_ALARM, frequency_p_value
from aes_rl.types import Draw

ENGINES = ["numba", "torch"]


def filled(config, slots, backend="numba", capacity=None, **options):
    sampler = Sampler([config], capacity=capacity or slots, backend=backend, **options)
    streams = Streams([0], sampler.backend)
    for _ in range(slots):
        sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, 2))
    return sampler


def report(sampler, slots, norms):
    """Feed squared norms of given slots as if they had just been drawn."""
    model = sampler.draw(Streams([0], sampler.backend).uniform(Stream.DRAW, sampler.backend.counter(), 1))
    slots = torch.tensor([slots])
    probabilities = sampler.probabilities().gather(1, slots)
    views = (slots, probabilities) if sampler.backend.name == "torch" else (slots.numpy(), probabilities.numpy())
    sampler.feedback(Draw(*views, model.size, model.clock), Signals(gradient_norm={"critic": torch.tensor([norms])}))
    return probabilities[0].tolist()


@pytest.mark.parametrize("backend", ENGINES)
def test_closed_form_by_hand(backend) -> None:
    """S6 and S7 on three slots: κ = 0.4, ν = 9, d = 4 at slot 1, drawn at p = 1/3."""
    sampler = filled(Adaptive(floor=0.4, nu=9.0), 3, backend)
    assert report(sampler, [1], [4.0]) == pytest.approx([1 / 3])
    masses = [3.0, math.sqrt(9 + 12), 3.0]
    expected = [0.6 * mass / sum(masses) + 0.4 / 3 for mass in masses]
    assert sampler.probabilities()[0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("backend", ENGINES)
def test_a_slot_drawn_twice_is_added_twice(backend) -> None:
    """S7: w = 3·(4 + 5) after one batch that holds slot 1 twice."""
    sampler = filled(Adaptive(floor=0.4, nu=9.0), 3, backend)
    report(sampler, [1, 1], [4.0, 5.0])
    assert sampler.distribution.tree.masses[0, 1].item() == pytest.approx(math.sqrt(9 + 27), rel=1e-12)


@pytest.mark.parametrize("backend", ENGINES)
def test_soft_hard_and_annealed_forgetting_by_hand(backend) -> None:
    """S9 with M = 2: w = 30 (d = 6 at p = 1/5) is kept at ϱ after updates 2, 4, 6 and untouched after odd ones."""
    cases = {
        "soft": (Adaptive(nu=1.0, retention=0.5, forget_every=2), [30, 15, 15, 7.5, 7.5, 3.75]),
        "hard": (Adaptive(nu=1.0, retention=0.0, forget_every=2), [30, 0, 0, 0, 0, 0]),
        # ϱ = 1 − 0.8·t/8: 0.8 at t = 2, 0.6 at t = 4, 0.4 at t = 6
        "annealed": (
            Adaptive(nu=1.0, retention=1.0, retention_end=0.2, forget_every=2),
            [30, 24, 24, 14.4, 14.4, 5.76],
        ),
    }
    for name, (config, expected) in cases.items():
        sampler = filled(config, 5, backend, total_updates=8)
        report(sampler, [3], [6.0])
        for update_step, sum_left in enumerate(expected, start=1):
            sampler.advance(update_step)
            mass = sampler.distribution.tree.masses[0, 3].item()
            assert mass == pytest.approx(math.sqrt(1 + sum_left), rel=1e-12), (name, update_step)


def test_default_forgetting_period_is_the_largest_with_square_below_capacity() -> None:
    for capacity, expected in {1: 1, 4: 1, 5: 2, 9: 2, 10: 3, 1_000_000: 999}.items():
        sampler = Sampler([Adaptive()], capacity=capacity)
        (part,) = sampler._slices
        assert part.rule.forget_every == expected


def test_naive_restarts_after_every_epoch() -> None:
    sampler = filled(Naive(updates_per_epoch=3, nu=1.0), 5)
    report(sampler, [2], [6.0])
    for update_step in (1, 2):
        sampler.advance(update_step)
        assert sampler.distribution.tree.masses[0, 2].item() > 1
    sampler.advance(3)
    assert sampler.distribution.tree.masses[0].tolist() == [1.0] * 5


@pytest.mark.parametrize("backend", ENGINES)
def test_overwriting_follows_one_minus_p(backend) -> None:
    """S11 by frequency: P(slot j is given up) = (1 − p(j))/(N − 1)."""
    sampler = filled(Adaptive(floor=0.1, nu=1.0), 5, backend)
    report(sampler, [0, 1, 2], [400.0, 90.0, 10.0])
    probabilities = sampler.probabilities()[0]
    state = {name: value.clone() for name, value in sampler.state_dict().items()}
    streams = Streams([5], sampler.backend)
    given_up = []
    for counter in range(4000):
        sampler.load_state_dict(state)
        given_up.append(int(sampler.place(streams.uniform(Stream.PLACE, sampler.backend.counter() + counter, 2))[0, 0]))
    assert frequency_p_value(torch.tensor(given_up), (1 - probabilities) / 4) > FALSE_ALARM


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("overwrite", ["adaptive", "uniform", "fifo"])
def test_many_transitions_at_once_get_distinct_slots(overwrite, backend) -> None:
    for before in (0, 3, 6, 9):
        sampler = filled(Adaptive(overwrite=overwrite), before, backend, capacity=8)
        streams = Streams([1], sampler.backend)
        for counter in range(60):
            slots = sampler.place(streams.uniform(Stream.PLACE, sampler.backend.counter() + counter, 10))[0].tolist()
            assert len(set(slots)) == 5
            assert max(slots) < 8


def test_engines_place_many_alike() -> None:
    slots = []
    for backend in ENGINES:
        sampler = filled(Adaptive(), 6, backend, capacity=8)
        streams = Streams([1], sampler.backend)
        slots.append(
            [
                sampler.place(streams.uniform(Stream.PLACE, sampler.backend.counter() + counter, 8)).tolist()
                for counter in range(50)
            ]
        )
    assert slots[0] == slots[1]


def test_inherit_keeps_the_old_sum() -> None:
    """The paper's listing leaves w at an overwritten slot; S10 clears it."""
    for inherit, expected in ((True, math.sqrt(1 + 30)), (False, 1.0)):
        sampler = filled(Adaptive(nu=1.0, overwrite="fifo", inherit=inherit), 5)
        report(sampler, [0], [6.0])
        streams = Streams([0], sampler.backend)
        assert int(sampler.place(streams.uniform(Stream.PLACE, 5, 2))[0, 0]) == 0
        assert sampler.distribution.tree.masses[0, 0].item() == pytest.approx(expected)


def test_signal_can_be_restricted_to_some_networks() -> None:
    norms = {"actor": torch.tensor([[1.0]]), "critic": torch.tensor([[100.0]])}
    sums = {}
    for networks in (None, ("actor",), ("critic",), ("actor", "critic")):
        sampler = filled(Adaptive(networks=networks), 1)
        draw = sampler.draw(Streams([0], sampler.backend).uniform(Stream.DRAW, 0, 1))
        sampler.feedback(draw, Signals(gradient_norm=norms))
        sums[networks] = sampler.state_dict()["rules.0.Adaptive.sums"].item()
    assert sums == {None: 101, ("actor",): 1, ("critic",): 100, ("actor", "critic"): 101}


@pytest.mark.parametrize("backend", ENGINES)
def test_full_information_finds_the_best_distribution(backend) -> None:
    """S5 on a frozen problem: told every norm, AES captures more than 0.95 of what the oracle does."""
    torch.manual_seed(0)
    norms = (2 * torch.randn(1, 500, dtype=torch.float64)).exp()
    sampler = filled(FullInformation(nu=1.0), 500, backend)
    assert captured_fraction(norms, sampler.probabilities()).item() == pytest.approx(0, abs=1e-9)
    for _ in range(100):
        sampler.observe_all(norms)
    assert captured_fraction(norms, sampler.probabilities()).item() > 0.95


def test_partial_information_finds_it_too_when_every_slot_is_visited_often() -> None:
    """With many visits a slot AES learns p* up to its floor."""
    torch.manual_seed(0)
    norms = (2 * torch.randn(1, 50, dtype=torch.float64)).exp()
    sampler = filled(Adaptive(floor=0.05, nu=1.0, retention=1.0), 50)
    streams = Streams([3], sampler.backend)
    for update_step in range(1, 2000):
        draw = sampler.draw(streams.uniform(Stream.DRAW, update_step, 32))
        sampler.feedback(draw, Signals(gradient_norm={"critic": norms.gather(1, draw.slots)}))
        sampler.advance(update_step)
    best = norms.sqrt() / norms.sqrt().sum() * 0.95 + 0.05 / 50
    ceiling = captured_fraction(norms, best).item()
    assert captured_fraction(norms, sampler.probabilities()).item() > ceiling - 0.02


@pytest.mark.parametrize("backend", ENGINES)
def test_own_nu_follows_the_mean_of_the_sums(backend) -> None:
    """Five of ten slots are live. w = 25·2 at slot 1 (d = 2·5, p = 1/5) makes ν = 50/5; forgetting halves both."""
    sampler = filled(Adaptive(nu="auto", retention=0.5, forget_every=4), 5, backend, capacity=10)
    report(sampler, [1], [10.0])
    sampler.advance(1)
    masses = sampler.distribution.tree.masses[0]
    assert masses[:5].tolist() == pytest.approx([math.sqrt(10)] + [math.sqrt(60)] + [math.sqrt(10)] * 3)
    assert masses[5:].tolist() == [0] * 5
    sampler.advance(3)
    assert masses[1].item() == pytest.approx(math.sqrt(60))
    sampler.advance(4)
    assert masses[:2].tolist() == pytest.approx([math.sqrt(5), math.sqrt(30)])


@pytest.mark.parametrize("backend", ENGINES)
def test_own_nu_follows_growing_norms_under_hard_forgetting(backend) -> None:
    """The sums are zero after every restart; ν is then the mean that they had."""
    sampler = filled(Adaptive(nu="auto", retention=0.0, forget_every=2), 5, backend)
    report(sampler, [1], [10.0])
    sampler.advance(2)
    assert sampler.distribution.tree.masses[0].tolist() == pytest.approx([math.sqrt(10)] * 5)
    report(sampler, [1], [1000.0])
    sampler.advance(4)
    assert sampler.distribution.tree.masses[0].tolist() == pytest.approx([math.sqrt(1000)] * 5)


def test_own_nu_makes_the_scale_of_norms_irrelevant() -> None:
    found = []
    for scale in (1e-4, 1.0, 1e4):
        sampler = filled(Adaptive(nu="auto"), 20)
        for step in range(1, 40):
            report(sampler, [step % 20, (7 * step) % 20], [scale * (1 + step % 3), scale * 9.0])
            sampler.advance(step)
        sampler.advance(64)
        found.append(sampler.probabilities())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-3, atol=0)
