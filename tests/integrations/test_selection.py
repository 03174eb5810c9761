"""The queue of drawn batches and the length of the run."""

import pickle

import pytest
import torch

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.selection import Selection


def filled(config, **options):
    selection = Selection(config, 30, 0, **options)
    selection.place(29)
    return selection


def answer(pending) -> None:
    pending.gradient_norm["critic"] = torch.arange(1.0, len(pending.weights) + 1)


def test_batches_leave_the_queue_in_any_order_with_feedback_on_their_own_slots() -> None:
    """Two batches drawn ahead and answered in reverse, against the same feedback given by hand."""
    selection, twin = (filled(Adaptive(nu=1.0), draws_ahead=True) for _ in range(2))
    first, second = selection.draw(4), selection.draw(4)
    assert list(selection.queue) == [first.number, second.number] == [1, 2]
    assert selection.pending is second
    others = [twin.draw(4), twin.draw(4)]
    for pending in (second, first):
        answer(pending)
        selection.report(pending)
    for pending in reversed(others):
        answer(pending)
        twin.report(pending)
    assert not selection.queue
    assert selection.last is first
    assert torch.equal(selection.sampler.probabilities(), twin.sampler.probabilities())
    assert selection.sampler.probabilities().std() > 0


def test_feedback_is_given_once() -> None:
    selection = filled(Adaptive(nu=1.0), draws_ahead=True)
    pending = selection.draw(4)
    answer(pending)
    selection.report(pending)
    before = selection.sampler.probabilities().clone()
    selection.report(pending)
    assert selection.updates == 1
    assert torch.equal(selection.sampler.probabilities(), before)


def test_a_host_that_does_not_draw_ahead_gives_feedback_before_it_goes_on() -> None:
    for go_on in (lambda one: one.draw(4), lambda one: one.place(1), lambda one: one.state_dict()):
        selection = filled(Adaptive(nu=1.0))
        selection.draw(4).sources.append(answer)
        go_on(selection)
        assert selection.updates == 1
        selection = filled(Adaptive(nu=1.0))
        selection.draw(4)
        with pytest.raises(RuntimeError, match="Adaptive got no feedback on the last batch"):
            go_on(selection)


def test_a_discarded_batch_is_no_update() -> None:
    selection = filled(Adaptive())
    selection.draw(4)
    selection.discard()
    selection.draw(4).sources.append(answer)
    selection.settle()
    assert (selection.draws, selection.updates) == (2, 1)
    ahead = filled(Adaptive(), draws_ahead=True)
    kept, dropped = ahead.draw(4), ahead.draw(4)
    ahead.discard(dropped.number)
    assert list(ahead.queue) == [kept.number]


def test_a_schedule_advances_without_feedback_where_none_is_needed() -> None:
    selection = filled(Uniform(), draws_ahead=True)
    for _ in range(100):
        selection.draw(4)
    assert not selection.queue
    assert selection.updates == 100


def test_a_name_is_as_good_as_a_configuration() -> None:
    assert Selection("predictive", 30, 0).config == Predictive()
    assert Selection("adaptive:floor=0.3", 30, 0).config == Adaptive(floor=0.3)
    with pytest.raises(UserError, match="unknown sampler 'predictiv'"):
        Selection("predictiv", 30, 0)


def test_the_length_of_the_run_is_inferred_before_the_first_transition() -> None:
    with pytest.raises(UserError, match="give total_updates"):
        Selection(Prioritized(), 30, 0)
    selection = Selection(Prioritized(), 30, 0, length_is_inferred=True)
    with pytest.raises(UserError, match="attach it to the model before training, or give total_updates"):
        selection.place(1)
    selection.infer_length = lambda: 10
    selection.place(1)
    assert selection.total_updates == 10
    rule = selection.sampler.rules[0]
    exponents = []
    for _ in range(11):
        selection.draw(4).sources.append(lambda pending: pending.td_errors.append(torch.ones(4)))
        selection.settle()
        exponents.append(rule.weight_exponent.item())
    assert exponents[4] == pytest.approx(0.7)
    assert exponents[9] == exponents[10] == pytest.approx(1.0)
    again = pickle.loads(pickle.dumps(selection))
    assert again.total_updates == 10
    assert selection.emptied().total_updates is again.emptied().total_updates is None


def test_a_given_length_wins() -> None:
    selection = Selection(Prioritized(), 30, 0, 7, length_is_inferred=True)
    selection.infer_length = lambda: 10
    selection.place(1)
    assert selection.total_updates == 7


def test_a_state_of_another_layout_is_named() -> None:
    selection = filled(Uniform())
    state = selection.state_dict()
    del state["last_report"]
    with pytest.raises(UserError, match="differ in last_report"):
        selection.load_state_dict(state)
    with pytest.raises(UserError, match="saved with seed 0, not 1"):
        Selection(Uniform(), 30, 1).load_state_dict(selection.state_dict())
