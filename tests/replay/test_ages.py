"""How long ago a slot was last reported on."""

import math

import pytest
import torch

from aes_rl import Adaptive, Replay, Signals, Transition
from aes_rl.replay.ages import FeedbackAges


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_ages_count_updates_since_the_last_report(backend) -> None:
    replay = Replay(
        [Adaptive(overwrite="fifo")] * 2, capacity=5, observation_size=1, action_size=1, seeds=[0, 1],
        remembers_feedback=True, backend=backend,
    )  # fmt: skip
    shadow = [{} for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 40):
        fields = [torch.rand(2, *shape, generator=generator) for shape in ((1,), (1,), (), (1,), ())]
        replay.add(Transition(*fields))
        for member in shadow:
            member.pop((step - 1) % 5, None)
        sample = replay.sample(2)
        replay.feedback(sample.draw, Signals(None, {"critic": torch.rand(2, 2, generator=generator)}))
        replay.advance(step)
        for member, slots in zip(shadow, sample.draw.slots.tolist(), strict=True):
            member.update(dict.fromkeys(slots, step))
        live = torch.arange(len(replay))
        found = replay.ages.ages(live, replay.draws)
        for own, expected in zip(found.tolist(), shadow, strict=True):
            assert own == [step - expected[slot] if slot in expected else math.inf for slot in live.tolist()]
    saved = {name: value.clone() for name, value in replay.state_dict().items()}
    replay.ages.last_report.zero_()
    replay.load_state_dict(saved)
    assert torch.equal(replay.ages.last_report, saved["last_report"])


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_late_reports_leave_the_ages_of_overwritten_slots(backend) -> None:
    replay = Replay(
        [Adaptive(overwrite="fifo")], capacity=3, observation_size=1, action_size=1, seeds=[0],
        remembers_feedback=True, backend=backend,
    )  # fmt: skip
    one = torch.ones(1)
    transition = Transition(one[:, None], one[:, None], one, one[:, None], one)
    for _ in range(3):
        replay.add(transition)
    sample = replay.sample(32)
    assert set(sample.draw.slots.flatten().tolist()) == {0, 1, 2}
    for _ in range(2):
        replay.add(transition)
    replay.feedback(sample.draw, Signals(None, {"critic": torch.ones(1, 32)}))
    assert replay.ages.ages(torch.arange(3), replay.draws).tolist() == [[math.inf, math.inf, 0]]


def test_nothing_is_kept_unless_asked_for() -> None:
    replay = Replay([Adaptive()], capacity=5, observation_size=1, action_size=1, seeds=[0])
    assert replay.ages is None
    assert "last_report" not in replay.state_dict()
    assert FeedbackAges(1, 3, torch.device("cpu")).ages(torch.arange(3), 7).tolist() == [[math.inf] * 3]
