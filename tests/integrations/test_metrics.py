"""The numbers that show how selection goes, against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from aes_rl import Adaptive, Uniform
from aes_rl.integrations import metrics
from aes_rl.integrations.selection import Pending, Selection
from aes_rl.types import Signal


def test_a_batchs_weights_and_losses() -> None:
    batch = Pending(1, None, torch.tensor([0.5, 0.5, 2.0]), Signal.NONE)
    batch.critic_terms = [lambda: torch.tensor([1.0, 2.0, 3.0]), lambda: torch.tensor([0.0, 1.0, 1.0])]
    assert metrics.of_batch(batch) == pytest.approx(
        {
            "smallest_weight": 0.5,
            "largest_weight": 2.0,
            "effective_sample_size": 3.0**2 / 4.5,
            "weighted_critic_loss": (0.5 * 1 + 0.5 * 3 + 2 * 4) / 3,
            "unweighted_critic_loss": 8 / 3,
        }
    )
    assert "weighted_critic_loss" not in metrics.of_batch(Pending(1, None, torch.ones(2), Signal.NONE))


def give(selection, count=4):
    """One update with feedback; the drawn slots."""
    pending = selection.draw(count)
    pending.gradient_norm["critic"] = torch.ones(count)
    selection.report(pending)
    return set(pending.draw.slots[0].tolist())


@pytest.mark.parametrize("draws_ahead", [False, True])
def test_ages_count_updates_since_the_last_feedback(draws_ahead) -> None:
    """A slot written again has no feedback, and feedback that comes after the writing is not on what it holds now."""
    selection = Selection(Adaptive(overwrite="fifo"), 20, 0, draws_ahead=draws_ahead)
    selection.place(19)
    selection.place(1)
    assert metrics.of_feedback(selection) == {"never_reported": 1.0}
    last = {slot: update for update in range(1, 6) for slot in give(selection)}
    expected = {
        "never_reported": 1 - len(last) / 20,
        "median_feedback_age": 5 - np.median(list(last.values())),
    }
    assert metrics.of_feedback(selection) == pytest.approx(expected)
    late = selection.draw(4) if draws_ahead else None
    selection.place(19)
    if late is not None:
        late.gradient_norm["critic"] = torch.ones(4)
        selection.report(late)
    kept = {slot for slot in (last if late is None else [*last, *late.draw.slots[0].tolist()]) if slot == 19}
    assert metrics.of_feedback(selection)["never_reported"] == pytest.approx(1 - len(kept) / 20)


def test_a_sampler_without_feedback_has_no_age() -> None:
    selection = Selection(Uniform(), 5, 0)
    selection.place(3)
    assert metrics.of_feedback(selection) == {}


def test_ages_are_saved() -> None:
    selection, other = (Selection(Adaptive(), 20, 0) for _ in range(2))
    selection.place(19)
    for _ in range(3):
        give(selection)
    other.load_state_dict(selection.state_dict())
    assert metrics.of_feedback(other) == metrics.of_feedback(selection)
    assert "median_feedback_age" in metrics.of_feedback(other)


def test_the_captured_fraction_is_one_for_the_best_distribution() -> None:
    norms = {"actor": torch.tensor([1.0, 4.0]), "critic": torch.tensor([0.0, 5.0])}
    uniform, best = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])  # ∝ √1, √9
    assert metrics.captured(norms, uniform)["captured_fraction"] == pytest.approx(0, abs=1e-12)
    found = metrics.captured(norms, best)
    assert found["captured_fraction"] == pytest.approx(1)
    # Of the actor: f(u) = 10, f(p) = 1/0.25 + 4/0.75 and f(p*) = (1 + 2)².
    assert found["captured_fraction_actor"] == pytest.approx(10 - 4 - 16 / 3)
    equal = metrics.captured({"critic": torch.ones(2)}, uniform)
    assert math.isnan(equal["captured_fraction"])
