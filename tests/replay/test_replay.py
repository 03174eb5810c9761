"""The buffer as a whole: what is stored comes back, and a saved buffer goes on as if nothing had happened."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_rl import Adaptive, Predictive, Prioritized, Replay, Signals, Transition, Uniform
from aes_rl.errors import UserError
from aes_rl.samplers import RULES
from aes_rl.samplers.uniform import UniformRule

TWO = (Adaptive(), Prioritized())


def make_replay(configs=TWO, capacity=20, backend="numba", **options):
    sizes = {"observation_size": 3, "action_size": 2} | options
    return Replay(
        list(configs), capacity=capacity, seeds=range(len(configs)), total_updates=100, backend=backend, **sizes
    )


def numbered(members, number, observation_size=3, action_size=2):
    """A transition whose every field says which it is."""
    base = number + torch.arange(members, dtype=torch.float32) / 10
    return Transition(
        base[:, None].expand(members, observation_size) + 0.01,
        base[:, None].expand(members, action_size) + 0.02,
        base + 0.03,
        base[:, None].expand(members, observation_size) + 0.04,
        torch.full((members,), float(number % 2)),
    )


@pytest.mark.parametrize("backend", ["numba", "torch"])
@given(
    members=st.integers(1, 3),
    capacity=st.integers(1, 9),
    observation_size=st.integers(1, 40),
    action_size=st.integers(1, 20),
    insertions=st.integers(1, 25),
)
@settings(max_examples=25, deadline=None)
def test_a_batch_holds_what_was_stored(backend, members, capacity, observation_size, action_size, insertions) -> None:
    sizes = {"observation_size": observation_size, "action_size": action_size}
    replay = make_replay([Uniform()] * members, capacity, backend, **sizes)
    for number in range(insertions):
        replay.add(numbered(members, number, **sizes))
    assert len(replay) == min(insertions, capacity)
    batch, draw, weights, _ = replay.sample(50)
    assert torch.allclose(weights, torch.ones(members, 50))
    numbers = (batch.reward - 0.03 - torch.arange(members).unsqueeze(1) / 10).round()
    for member in range(members):
        for position in range(50):
            number = int(numbers[member, position])
            assert number % capacity == int(draw.slots[member, position])
            assert insertions - capacity <= number < insertions
            expected = numbered(members, number, **sizes)
            for name in Transition._fields:
                stored = getattr(batch, name)[member, position]
                assert torch.equal(stored, getattr(expected, name)[member]), name


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saved_replay_continues(backend, dtype, tmp_path) -> None:
    def run(replay, numbers):
        samples = []
        for number in numbers:
            replay.add(Transition(*(field.to(dtype) for field in numbered(2, number))))
            batch, draw, weights, _ = replay.sample(6)
            replay.feedback(draw, Signals(td_error=batch.reward, gradient_norm={"critic": batch.reward.square()}))
            replay.advance(number + 1)
            samples.append((batch.rows, draw.slots, draw.probabilities, weights))
        return samples

    replay = make_replay(backend=backend, dtype=dtype)
    run(replay, range(33))
    torch.save(replay.state_dict(), tmp_path / "replay.pt")
    expected = run(replay, range(33, 133))
    restored = make_replay(backend=backend, dtype=dtype)
    restored.load_state_dict(torch.load(tmp_path / "replay.pt", weights_only=True))
    for one, other in zip(expected, run(restored, range(33, 133)), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert expected[0][3].dtype == dtype


def test_a_state_moves_between_engines() -> None:
    """A run saved on the CPU goes on with tensor operations, as it would on a GPU."""
    replay, other = make_replay(backend="numba"), make_replay(backend="torch")
    for number in range(30):
        replay.add(numbered(2, number))
    other.load_state_dict(replay.state_dict())
    assert torch.equal(replay.sample(40).draw.slots, other.sample(40).draw.slots)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_an_earlier_state_replaces_a_fuller_buffer(backend) -> None:
    """The masses of slots that are empty again count nowhere."""
    replay, fresh = (make_replay([Adaptive(overwrite="fifo")], 40, backend) for _ in range(2))
    for number in range(12):
        replay.add(numbered(1, number))
    early = {name: value.clone() for name, value in replay.state_dict().items()}
    for number in range(12, 37):
        replay.add(numbered(1, number))
    replay.load_state_dict(early)
    fresh.load_state_dict(early)
    assert torch.equal(replay.sampler.distribution.tree.totals, fresh.sampler.distribution.tree.totals)
    found, expected = replay.sample(50), fresh.sample(50)
    assert torch.equal(found.draw.slots, expected.draw.slots)
    assert torch.equal(found.weights, expected.weights)


@pytest.mark.parametrize("floor", [1.7, -0.1, float("nan"), float("inf")])
def test_a_state_with_an_impossible_floor_is_rejected(floor) -> None:
    replay = make_replay([Predictive()])
    for number in range(5):
        replay.add(numbered(1, number))
    state = {name: value.clone() for name, value in replay.state_dict().items()}
    state["sampler.distribution.floor"].fill_(floor)
    before = replay.sampler.probabilities()
    with pytest.raises(UserError, match=rf"floor is {floor}; it must lie in \[0, 1\]"):
        replay.load_state_dict(state)
    assert torch.equal(replay.sampler.probabilities(), before)


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("slots", [[[10], [0]], [[0], [-1]]])
def test_slots_of_no_transition_are_not_read(slots, backend) -> None:
    """They would be rows of another member."""
    replay = make_replay([Uniform()] * 2, 10, backend)
    for number in range(10):
        replay.add(numbered(2, number))
    with pytest.raises(UserError, match=r"slot (10|-1) is none of the 10 live slots; give slots from 0 to 9"):
        replay.read(torch.tensor(slots))


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_empty_slots_cannot_be_renewed(backend) -> None:
    replay = make_replay([Adaptive()], 10, backend)
    for number in range(4):
        replay.add(numbered(1, number))
    with pytest.raises(UserError, match="slot 7 is none of the 4 live slots"):
        replay.sampler.renew(replay.sampler.backend.view(torch.tensor([[7]])))
    replay.sampler.renew(replay.sampler.backend.view(torch.tensor([[3]])))
    assert replay.sampler.probabilities().sum().item() == pytest.approx(1)


@dataclass(frozen=True)
class Shrinking:
    """A sampler whose floor follows from the last one, and from nothing else that is saved."""


class ShrinkingRule(UniformRule):
    config_type: ClassVar = Shrinking

    def __init__(self, config, setting):
        del config
        self.setting, self.floor, self.overwrite = setting, 0.8, "fifo"

    def advance(self, update_step):
        del update_step
        self.floor *= 0.9


def test_a_floor_that_follows_from_the_last_one_continues(monkeypatch) -> None:
    monkeypatch.setitem(RULES, "shrinking", ShrinkingRule)
    one, other = (make_replay([Shrinking()]) for _ in range(2))
    for step in range(1, 6):
        one.add(numbered(1, step))
        one.advance(step)
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for replay in (one, other):
        replay.advance(6)
    assert other.sampler.distribution.floor.item() == one.sampler.distribution.floor.item() < 0.5


def test_batch_fields_are_views() -> None:
    replay = make_replay()
    replay.add(numbered(2, 0))
    batch = replay.sample(4).batch
    assert batch.observation.untyped_storage().data_ptr() == batch.rows.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_slots_chosen_elsewhere_are_read_as_they_were_written(backend) -> None:
    """The laboratory chooses slots itself, as a tensor, whichever backend holds the rows."""
    replay = Replay([Uniform()] * 2, capacity=5, observation_size=1, action_size=1, seeds=[0, 1], backend=backend)
    for step in range(5):
        value = torch.tensor([float(step), 10.0 + step])
        replay.add(Transition(value[:, None], value[:, None], value, value[:, None], torch.zeros(2)))
    batch = replay.read(torch.tensor([[4, 0, 4], [1, 2, 3]]))
    assert batch.reward.tolist() == [[4, 0, 4], [11, 12, 13]]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_arrays_of_an_environment_are_stored_like_tensors(backend) -> None:
    """Gymnasium gives float64 observations and bool flags; a wrong view would store other bytes, or other columns."""
    by_array, by_tensor = make_replay(backend=backend), make_replay(backend=backend)
    generator = np.random.default_rng(0)
    for step in range(8):
        fields = [generator.normal(size=field.shape) for field in numbered(2, 0)[:4]]
        by_array.add(Transition(*fields, np.array([True, step % 2 == 0])))
        by_tensor.add(Transition(*map(torch.from_numpy, fields), torch.tensor([1.0, step % 2 == 0])))
    assert torch.equal(by_array.storage.rows, by_tensor.storage.rows)
    assert by_array.storage.rows[0, 0, -1] == 1


def test_an_array_that_is_not_finite_is_named() -> None:
    values, wrong = np.zeros((2, 3)), np.array([0.0, np.nan])
    with pytest.raises(UserError, match="reward of member 1 is not finite"):
        make_replay().add(Transition(values, values[:, :2], wrong, values, np.zeros(2)))
