"""The checks that every sampler must pass. Each takes a case and raises AssertionError with the wrong values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from aes_rl.backends import choose
from aes_rl.samplers.registry import resolve
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.testing.scenarios import (
    SHORT,
    assert_equal,
    assert_stay_equal,
    differ_later,
    draw_of,
    early,
    insert_two,
    insertions_after_wrap,
    new_run,
    report_values,
    shortened,
    signals_of,
    simulate,
    stages,
    view,
    wrapped,
)
from aes_rl.testing.simulated_run import Case, SimulatedRun
from aes_rl.testing.statistics import FALSE_ALARM, frequency_p_value, mean_p_value
from aes_rl.types import BackendName, Signal
from aes_rl.weighting import unbiased

Check = Callable[[Case], None]
_DRAWS = 10_000


def masses_have_the_shape_of_what_they_are_for(case: Case) -> None:
    """`fresh` returns one mass per slot written, and `feedback` None or one per drawn slot."""
    run = new_run(case)
    rule, called = run.sampler.rules[0], {}

    def watch(name: str, shape_of: Callable[[Any], Any]) -> None:
        original = getattr(rule, name)

        def watched(argument: Any) -> Any:
            called[name] = True
            masses = original(argument)
            expected = tuple(shape_of(argument))
            assert masses is None or tuple(masses.shape) == expected, (
                f"{type(rule).__name__}.{name} returned masses of shape {tuple(masses.shape)}; return {expected}"
            )
            return masses

        setattr(rule, name, watched)

    watch("fresh", lambda slots: slots.shape)
    watch("feedback", lambda report: report.draw.slots.shape)
    run.train(2)
    assert called["fresh"]


def probabilities_are_a_distribution(case: Case) -> None:
    """Probabilities are positive on every live slot and sum to 1, from the first insertion to after the wrap-around."""
    for run in stages(case):
        probabilities = run.sampler.probabilities()
        assert probabilities.shape == (case.members, len(run.sampler))
        assert bool((probabilities > 0).all()), f"a live slot has probability {probabilities.min()}"
        assert torch.allclose(probabilities.sum(1), torch.ones(case.members, dtype=torch.float64), atol=1e-12, rtol=0)


def draws_stay_among_live_slots(case: Case) -> None:
    """No empty slot is drawn, and the probabilities of a draw are those of its slots."""
    for run in stages(case):
        draw = run.draw(512)
        slots = draw.slots
        assert int(slots.min()) >= 0
        assert int(slots.max()) < len(run.sampler), f"slot {int(slots.max())} was drawn with {len(run.sampler)} live"
        expected = run.sampler.probabilities().gather(1, slots)
        assert torch.allclose(draw.probabilities, expected, rtol=1e-9, atol=0)


def frequencies_follow_probabilities(case: Case) -> None:
    """Pearson's χ² test of the drawn slots against the reported probabilities, for every member."""
    for run in stages(case):
        probabilities = run.sampler.probabilities()
        slots = run.draw(_DRAWS).slots
        for member in range(case.members):
            chance = frequency_p_value(slots[member], probabilities[member])
            assert chance > FALSE_ALARM, f"member {member}: draw frequencies are wrong (p-value {chance})"


def weighted_mean_is_unbiased(case: Case) -> None:
    """The mean of an arbitrary function over draws, weighted by 1/(n·p), is the uniform mean.

    A rule with `is_unbiased` must return exactly these weights. All weights must be positive and finite, and those of
    a draw stay the same whatever happens after it.
    """
    backend = choose(case.backend, "cpu")
    for run in stages(case):
        size = len(run.sampler)
        values = torch.sin(torch.arange(size, dtype=torch.float64) * 7 + 1) * torch.arange(1, size + 1)
        draw = run.draw(_DRAWS)
        weights = unbiased(draw, backend, torch.float64)
        own = run.sampler.weights(draw).double()
        assert own.shape == draw.slots.shape, f"weights of shape {tuple(own.shape)}; return {tuple(draw.slots.shape)}"
        assert bool(((own > 0) & own.isfinite()).all()), "weights must be positive and finite"
        if run.sampler.rules[0].is_unbiased:
            assert torch.allclose(own, weights, rtol=1e-6), "the weights are not 1/(n·p)"
        weighted = values[draw.slots] * weights
        for member in range(case.members):
            chance = mean_p_value(weighted[member], float(values.mean()))
            assert chance > FALSE_ALARM, f"member {member}: the weighted mean is biased (p-value {chance})"
        few = run.draw(64)
        before = run.sampler.weights(few).clone()
        run.insert()
        run.sampler.feedback(few, run.signals(64))
        later = run.sampler.weights(few)
        assert torch.equal(later, before), "the weights of a draw changed after it; compute them from the draw alone"


def overwriting_forgets(case: Case) -> None:
    """All slots just written start at the same mass, whatever their old content was."""
    run = wrapped(case)
    if not run.sampler.needs:
        return  # rules without feedback have nothing to forget and may depend on the age of slots
    first, second = insert_two(run)
    _assert_equal_masses(
        run,
        first,
        second,
        "what a slot held, or how many slots were written before, must not count in a rule with feedback: new slots "
        "start at masses",
    )
    _report_same(run, first, second)
    _assert_equal_masses(run, first, second, "`fresh` kept old state: after the same reports, new slots have masses")


def overwriting_leaves_no_trace(case: Case) -> None:
    """Reports on content that was overwritten since do not affect any slot, also not in a later `advance`.

    Two runs swap the reports on two slots, which are then overwritten. Statistics over all slots may remain; they
    are the same in both.
    """
    if case.capacity == 1:
        return
    case = shortened(case)
    for is_told in (False, True):
        one, other = early(case), early(case)
        pair = torch.tensor([[0, len(one.sampler) - 1]]).repeat(case.members, 1)
        for run, slots in ((one, pair), (other, pair.flip(1))):
            run.sampler.renew(view(slots, run))
            for values in ([5.0, 700.0], [40.0, 9000.0]):
                report_values(run, slots, values)
                for _ in range(SHORT):
                    run.advance()
            report_values(run, slots, [2.0, 300.0])
            run.sampler.renew(view(pair, run))
            if is_told:
                report_values(run, pair, [3.0, 3.0])
        assert_stay_equal(one, other, "`fresh` kept old state: reports on overwritten content have an effect")


def empty_slots_do_not_count(case: Case) -> None:
    """After the same insertions and reports, live slots have the same probabilities in a larger buffer."""
    if case.capacity == 1:
        return
    case = shortened(case)
    size = min(case.capacity, 20)
    full, larger = (new_run(replace(case, capacity=capacity)) for capacity in (size, 2 * case.capacity))
    what = (
        f"with the same {size} live slots, buffers of capacity {size} and {2 * case.capacity} differ: empty slots must "
        "not change the masses that `advance` returns for live slots, the first n slots that were passed to `fresh`; "
        "periods that depend on the capacity must be options listed in updates_options"
    )
    for number in range(size + 2 * SHORT):
        if number < size:
            full.insert()
            larger.insert()
        draw = full.draw(8)
        full.learn(draw)
        larger.learn(draw)
        assert_equal(full, larger, what)
    assert_stay_equal(full, larger, what)


def late_feedback_is_dropped(case: Case) -> None:
    """Feedback on a slot that was overwritten since the draw never affects its new content."""
    case = shortened(case)
    first, second = insert_two(wrapped(case))  # the slots of the next two insertions, to draw them before
    written = torch.cat([first, second], dim=1)
    one, other = wrapped(case), wrapped(case)
    draw, late = one.draw(64), draw_of(first, one)
    signals = one.signals(64)
    for run, alone in ((one, late), (other, draw_of(second, other, late))):
        insert_two(run)
        before = run.sampler.distribution.tree.masses.gather(1, written)
        run.sampler.feedback(draw, signals)
        run.sampler.feedback(alone, signals_of(torch.full(first.shape, 7.0)))
        after = run.sampler.distribution.tree.masses.gather(1, written)
        assert torch.equal(before, after), f"reports on old content changed masses of new slots: {before} to {after}"
    what = "the rule learned from a report on old content, where is_current is False"
    assert_stay_equal(one, other, what)
    for value in (3.0, 50.0):
        for run in (one, other):
            report_values(run, written, [value, value])
        assert_equal(one, other, what)
    assert_stay_equal(one, other, what)


def repeated_slots_count_in_order(case: Case) -> None:
    """For a slot drawn twice in a batch, the result is the same as for the two reports one after the other.

    If the rule's `is_sequential` is False, the result does not depend on the positions of other slots in the batch.
    """
    case = shortened(case)
    together, apart = early(case), early(case)
    slots = torch.zeros(case.members, 3, dtype=torch.int64)
    errors = torch.tensor([[5.0, 700.0, 40.0]]).expand(case.members, 3).contiguous()
    is_sequential = together.sampler.rules[0].is_sequential
    if is_sequential:
        draw = draw_of(slots, together)
        together.sampler.feedback(draw, signals_of(errors))
        for position in range(3):
            one = errors[:, position : position + 1].contiguous()
            single = draw_of(slots[:, :1].contiguous(), together, draw)
            apart.sampler.feedback(single, signals_of(one))
    else:
        slots[:, 1] = len(together.sampler) - 1
        order = [1, 0, 2] if case.capacity > 1 else [0, 1, 2]
        draw = draw_of(slots, together)
        shuffled = draw_of(slots[:, order].contiguous(), apart)
        together.sampler.feedback(draw, signals_of(errors))
        apart.sampler.feedback(shuffled, signals_of(errors[:, order].contiguous()))
    found, expected = together.sampler.probabilities(), apart.sampler.probabilities()
    assert torch.allclose(found, expected, rtol=1e-9, atol=0), (
        f"slot 0 has probability {found[:, 0]} after one batch and {expected[:, 0]} after the same reports in turn; "
        "if a batch should take effect as a whole, set is_sequential = False"
    )
    learns = bool(together.sampler.needs & (Signal.TD_ERROR | Signal.GRADIENT_NORM))
    if learns and case.capacity > 1:
        assert differ_later(together, early(case)), "feedback had no effect, neither immediately nor in `advance`"


def same_counters_give_same_draws(case: Case) -> None:
    """Two samplers with the same seeds, insertions and reports draw the same slots."""
    one, other = wrapped(case), wrapped(case)
    for _ in range(20):
        assert torch.equal(one.update().slots, other.update().slots)


def saved_state_continues(case: Case) -> None:
    """After the state is loaded into a new sampler, the next 100 draws are the same."""
    run, restored = simulate(case, insertions_after_wrap(case), case.seeds()), new_run(case)
    restored.load(run.save())
    for number in range(100):
        run.insert()
        restored.insert()
        one, other = run.update(), restored.update()
        is_same = torch.equal(one.slots, other.slots) and torch.equal(one.probabilities, other.probabilities)
        assert is_same, (
            f"draw {number + 1} after loading differs: something that changes is missing from state_dict() or "
            "slot_state()"
        )


def saved_state_advances_alike(case: Case) -> None:
    """After saving and loading, `advance` has the same effect, even if it rarely has one."""
    case = shortened(case)
    run = simulate(case, 2 * SHORT, case.seeds())
    what = "after loading, `advance` returns other masses: something that changes is missing from state_dict()"
    restored = new_run(case)
    restored.load(run.save())
    for _ in range(SHORT):
        draw = run.draw(8)
        run.learn(draw)
        restored.learn(draw)
        assert_equal(run, restored, what)
    restored = new_run(case)  # again, because later reports may have hidden the difference
    restored.load(run.save())
    assert_stay_equal(run, restored, what)


def members_are_independent(case: Case) -> None:
    """A member draws the same slots, with the same weights, alone as in a population."""
    case = shortened(case)
    together = wrapped(case)
    alone = [wrapped(case, seeds=[seed]) for seed in case.seeds()]
    for _ in range(20):
        draw = together.update()
        weights = together.sampler.weights(draw)
        for member, run in enumerate(alone):
            own = run.update()
            what = f"member {member} and the same member alone have other"
            assert torch.equal(own.slots[0], draw.slots[member]), f"{what} draws"
            same = torch.allclose(own.probabilities[0], draw.probabilities[member], rtol=1e-12, atol=0)
            assert same, f"{what} probabilities"
            assert torch.allclose(run.sampler.weights(own)[0], weights[member], rtol=1e-6, atol=0), f"{what} weights"


CHECKS: tuple[Check, ...] = (
    masses_have_the_shape_of_what_they_are_for,
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
    saved_state_advances_alike,
    members_are_independent,
)


def check_sampler(
    config: SamplerConfig | str,
    *,
    members: Sequence[int] = (1, 3),
    capacities: Sequence[int] = (1, 7, 64, 1000),
    backends: Sequence[BackendName] = ("numba", "torch"),
) -> None:
    """Run all checks on the sampler with a configuration or a name; raise AssertionError at the first failure.

    The rule of the configuration must be registered in `aes_rl.samplers.registry.RULES`. Each statistical check has a
    false-alarm rate of one in a million and fixed seeds, so a sampler that passes keeps passing. The checks of
    `advance` set the options listed in `updates_options` to at most 10, so that all periodic work runs in them.
    Periodic work without such an option is checked if its period is at most 1,000 updates.
    """
    for backend in backends:
        for count in members:
            for capacity in capacities:
                for check in CHECKS:
                    check(Case(resolve(config), count, capacity, backend))


def _report_same(run: SimulatedRun, first: torch.Tensor, second: torch.Tensor) -> None:
    """Report the same values for both slots, in two batches."""
    for value in (3.0, 50.0):
        draw = draw_of(torch.cat([first, second], dim=1), run)
        run.sampler.feedback(draw, signals_of(torch.full(first.shape, value).expand(-1, 2).contiguous()))


def _assert_equal_masses(run: SimulatedRun, first: torch.Tensor, second: torch.Tensor, what: str) -> None:
    masses = run.sampler.distribution.tree.masses
    for member in range(len(first)):
        one, other = float(masses[member, first[member, 0]]), float(masses[member, second[member, 0]])
        assert math.isclose(one, other, rel_tol=1e-12), f"member {member}: {what} {one} and {other}"
