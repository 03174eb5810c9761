"""What every sampler must do, as functions of a case. Each raises AssertionError with the numbers that are wrong."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from aes_rl.backends import choose
from aes_rl.samplers.registry import rule_for
from aes_rl.testing.history import Case, Life
from aes_rl.testing.lives import (
    SHORT,
    assert_alike,
    beyond,
    both_written,
    draw_of,
    go_on_alike,
    grown,
    live,
    new,
    part_ways,
    report,
    shortened,
    stages,
    tell,
    view,
    young,
)
from aes_rl.testing.statistics import FALSE_ALARM, frequency_p_value, mean_p_value
from aes_rl.types import BackendName
from aes_rl.weighting import unbiased

Check = Callable[[Case], None]
_DRAWS = 10_000


def probabilities_are_a_distribution(case: Case) -> None:
    """Positive on every live slot and summing to one, from the first insertion to beyond the wrap-around."""
    for life in stages(case):
        probabilities = life.sampler.probabilities()
        assert probabilities.shape == (case.members, len(life.sampler))
        assert bool((probabilities > 0).all()), f"a live slot has no chance: {probabilities.min()}"
        assert torch.allclose(probabilities.sum(1), torch.ones(case.members, dtype=torch.float64), atol=1e-12, rtol=0)


def draws_stay_among_live_slots(case: Case) -> None:
    """Never an empty slot, and each draw carries the probability its slot has."""
    for life in stages(case):
        draw = life.draw(512)
        slots = draw.slots
        assert int(slots.min()) >= 0
        assert int(slots.max()) < len(life.sampler), f"slot {int(slots.max())} of {len(life.sampler)} live ones"
        expected = life.sampler.probabilities().gather(1, slots)
        assert torch.allclose(draw.probabilities, expected, rtol=1e-9, atol=0)


def frequencies_follow_probabilities(case: Case) -> None:
    """χ² of the observed slots against the reported probabilities, for every member."""
    for life in stages(case):
        probabilities = life.sampler.probabilities()
        slots = life.draw(_DRAWS).slots
        for member in range(case.members):
            chance = frequency_p_value(slots[member], probabilities[member])
            assert chance > FALSE_ALARM, f"member {member}: frequencies this far off have a chance of {chance}"


def weighted_mean_is_unbiased(case: Case) -> None:
    """The mean of an arbitrary function over draws, weighted by 1/(n·p), is the uniform mean.

    A rule that says so of itself must give exactly these weights; any rule's are positive.
    """
    backend = choose(case.backend, "cpu")
    for life in stages(case):
        size = len(life.sampler)
        values = torch.sin(torch.arange(size, dtype=torch.float64) * 7 + 1) * torch.arange(1, size + 1)
        draw = life.draw(_DRAWS)
        weights = unbiased(draw, backend, torch.float64)
        own = life.sampler.weights(draw).double()
        assert bool((own > 0).all())
        if life.sampler.rules[0].is_unbiased:
            assert torch.allclose(own, weights, rtol=1e-6), "the weights are not 1/(n·p)"
        weighted = values[draw.slots] * weights
        for member in range(case.members):
            chance = mean_p_value(weighted[member], float(values.mean()))
            assert chance > FALSE_ALARM, f"member {member}: a mean this far off has a chance of {chance}"


def overwriting_forgets(case: Case) -> None:
    """A slot just written starts like any other, whatever its old content was worth."""
    life = grown(case)
    if not life.sampler.needs:
        return  # what learns nothing has nothing to forget, and may treat slots by their age
    first, second = both_written(life)
    _stand_alike(life, first, second, "new slots start at masses")
    _tell_the_same(life, first, second)
    _stand_alike(life, first, second, "`fresh` forgot too little: new slots told the same are at masses")


def overwriting_leaves_no_trace(case: Case) -> None:
    """What was reported of content since overwritten makes no difference to any slot, after no `advance` either.

    Two histories exchange what is reported of two slots, which are then overwritten. Statistics over all slots may
    stay, and are the same in both.
    """
    if case.capacity == 1:
        return
    case = shortened(case)
    for is_told in (False, True):
        one, other = young(case), young(case)
        pair = torch.tensor([[0, len(one.sampler) - 1]]).repeat(case.members, 1)
        for life, slots in ((one, pair), (other, pair.flip(1))):
            life.sampler.renew(view(slots, life))
            for values in ([5.0, 700.0], [40.0, 9000.0]):
                tell(life, slots, values)
                for _ in range(SHORT):
                    life.advance()
            tell(life, slots, [2.0, 300.0])
            life.sampler.renew(view(pair, life))
            if is_told:
                tell(life, pair, [3.0, 3.0])
        go_on_alike(one, other, "`fresh` forgot too little: what was reported of overwritten content shows")


def empty_slots_do_not_count(case: Case) -> None:
    """The same history in a larger buffer gives live slots the same probabilities."""
    if case.capacity == 1:
        return
    case = shortened(case)
    size = min(case.capacity, 20)
    full, roomy = (new(replace(case, capacity=capacity)) for capacity in (size, 2 * case.capacity))
    what = (
        f"with the same {size} live slots a buffer of {size} and one of {2 * case.capacity} differ: the masses that "
        "`advance` returns for empty slots are ignored, but they must not change those of live slots, the first n "
        "that `fresh` was given; periods that follow from the capacity must be options named in updates_options"
    )
    for number in range(size + 2 * SHORT):
        if number < size:
            full.insert()
            roomy.insert()
        draw = full.draw(8)
        full.learn(draw)
        roomy.learn(draw)
        assert_alike(full, roomy, what)
    go_on_alike(full, roomy, what)


def late_feedback_is_dropped(case: Case) -> None:
    """Feedback for a slot overwritten since the draw changes nothing about its new content, then or later."""
    case = shortened(case)
    first, second = both_written(grown(case))  # where the next two go, for whoever wants to draw them before
    written = torch.cat([first, second], dim=1)
    one, other = grown(case), grown(case)
    draw, late = one.draw(64), draw_of(first, one)
    signals = one.signals(64)
    for life, alone in ((one, late), (other, draw_of(second, other, late))):
        both_written(life)
        before = life.sampler.distribution.tree.masses.gather(1, written)
        life.sampler.feedback(draw, signals)
        life.sampler.feedback(alone, report(torch.full(first.shape, 7.0)))
        after = life.sampler.distribution.tree.masses.gather(1, written)
        assert torch.equal(before, after), f"reports on old content took new slots from masses {before} to {after}"
    what = "a report on old content, where is_current is False, was learned from"
    go_on_alike(one, other, what)
    for value in (3.0, 50.0):
        for life in (one, other):
            tell(life, written, [value, value])
        assert_alike(one, other, what)
    go_on_alike(one, other, what)


def repeated_slots_count_in_order(case: Case) -> None:
    """A slot drawn twice in one batch ends as if its two reports had come one after the other.

    Where a batch counts as one, it ends the same wherever in the batch the other slots are reported.
    """
    case = shortened(case)
    together, apart = young(case), young(case)
    slots = torch.zeros(case.members, 3, dtype=torch.int64)
    errors = torch.tensor([[5.0, 700.0, 40.0]]).expand(case.members, 3).contiguous()
    if rule_for(case.config).is_sequential:
        draw = draw_of(slots, together)
        together.sampler.feedback(draw, report(errors))
        for position in range(3):
            one = errors[:, position : position + 1].contiguous()
            single = draw_of(slots[:, :1].contiguous(), together, draw)
            apart.sampler.feedback(single, report(one))
    else:
        slots[:, 1] = len(together.sampler) - 1
        order = [1, 0, 2] if case.capacity > 1 else [0, 1, 2]
        draw = draw_of(slots, together)
        shuffled = draw_of(slots[:, order].contiguous(), apart)
        together.sampler.feedback(draw, report(errors))
        apart.sampler.feedback(shuffled, report(errors[:, order].contiguous()))
    found, expected = together.sampler.probabilities(), apart.sampler.probabilities()
    assert torch.allclose(found, expected, rtol=1e-9, atol=0), (
        f"slot 0 has probability {found[:, 0]} after one batch and {expected[:, 0]} after the same reports in turn; "
        "if a batch is to count as one, set is_sequential = False"
    )
    if not rule_for(case.config).is_sequential and case.capacity > 1:
        assert part_ways(together, young(case)), "feedback changed nothing, neither at once nor by `advance`"


def same_counters_give_same_draws(case: Case) -> None:
    """Two samplers with the same seeds and history draw the same slots."""
    one, other = grown(case), grown(case)
    for _ in range(20):
        assert torch.equal(one.update().slots, other.update().slots)


def saved_state_continues(case: Case) -> None:
    """After saving, loading into a new sampler and going on, the next 100 draws are the same."""
    life, restored = live(case, beyond(case), case.seeds()), new(case)
    restored.load(life.save())
    for number in range(100):
        life.insert()
        restored.insert()
        one, other = life.update(), restored.update()
        is_same = torch.equal(one.slots, other.slots) and torch.equal(one.probabilities, other.probabilities)
        assert is_same, f"draw {number + 1} after loading is another: state_dict() lacks something that changes"


def saved_state_re_ranks_alike(case: Case) -> None:
    """After saving and loading, whatever `advance` does later is the same, however rarely it does it."""
    case = shortened(case)
    life = live(case, 2 * SHORT, case.seeds())
    what = "after loading, `advance` makes other masses: state_dict() lacks something that changes"
    restored = new(case)
    restored.load(life.save())
    for _ in range(SHORT):
        draw = life.draw(8)
        life.learn(draw)
        restored.learn(draw)
        assert_alike(life, restored, what)
    restored = new(case)  # again, as reports since may have made up for what was lost
    restored.load(life.save())
    go_on_alike(life, restored, what)


def members_are_independent(case: Case) -> None:
    """A member draws the same alone and among others."""
    together = grown(case)
    alone = [grown(case, seeds=[seed]) for seed in case.seeds()]
    for _ in range(20):
        draw = together.update()
        for member, life in enumerate(alone):
            own = life.update()
            assert torch.equal(own.slots[0], draw.slots[member])
            assert torch.allclose(own.probabilities[0], draw.probabilities[member], rtol=1e-12, atol=0)


CHECKS: tuple[Check, ...] = (
    probabilities_are_a_distribution,
    draws_stay_among_live_slots,
    frequencies_follow_probabilities,
    weighted_mean_is_unbiased,
    overwriting_forgets,
    overwriting_leaves_no_trace,
    empty_slots_do_not_count,
    late_feedback_is_dropped,
    repeated_slots_count_in_order,
    same_counters_give_same_draws,
    saved_state_continues,
    saved_state_re_ranks_alike,
    members_are_independent,
)


def check_sampler(
    config: Any,
    *,
    members: Sequence[int] = (1, 3),
    capacities: Sequence[int] = (1, 7, 64, 1000),
    backends: Sequence[BackendName] = ("numba", "torch"),
) -> None:
    """Run the whole battery on a sampler, given by its configuration; raises AssertionError on the first failure.

    The configuration's rule must be registered in `aes_rl.samplers.registry.RULES`. Statistical checks have a
    false-alarm rate of one in a million each, and fixed seeds, so a sampler that passes keeps passing. The checks of
    what `advance` does set the options named in `updates_options` to at most 10, so that everything happens in them;
    what a rule does without such an option is found if it happens at least every 1,000 updates.
    """
    for backend in backends:
        for count in members:
            for capacity in capacities:
                for check in CHECKS:
                    check(Case(config, count, capacity, backend))


def _tell_the_same(life: Life, first: torch.Tensor, second: torch.Tensor) -> None:
    """Report twice, in two batches, the same of both slots."""
    for value in (3.0, 50.0):
        draw = draw_of(torch.cat([first, second], dim=1), life)
        life.sampler.feedback(draw, report(torch.full(first.shape, value).expand(-1, 2).contiguous()))


def _stand_alike(life: Life, first: torch.Tensor, second: torch.Tensor, what: str) -> None:
    masses = life.sampler.distribution.tree.masses
    for member in range(len(first)):
        one, other = float(masses[member, first[member, 0]]), float(masses[member, second[member, 0]])
        assert math.isclose(one, other, rel_tol=1e-12), f"member {member}: {what} {one} and {other}"
