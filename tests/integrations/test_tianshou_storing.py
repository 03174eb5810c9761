"""What Tianshou's buffers store and what the sampler knows of it, also where storing fails or goes another way."""

import pickle

import h5py
import numpy as np
import pytest
import torch
from tianshou.data import Batch, CachedReplayBuffer, ReplayBuffer, ReplayBufferManager

from aes_rl import Adaptive, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.tianshou import SelectiveReplayBuffer, SelectiveVectorReplayBuffer

FIELDS = ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next")


def steps(value, environments, size=3, next_size=3):
    """One step of some environments."""
    return Batch(
        obs=np.full((environments, size), value, np.float32), act=np.full((environments, 1), value, np.float32),
        rew=np.full(environments, float(value)), terminated=np.zeros(environments, bool),
        truncated=np.zeros(environments, bool), obs_next=np.full((environments, next_size), value, np.float32),
        info=[{"step": value}] * environments,
    )  # fmt: skip


def filled(buffer, rows, environments=1):
    for value in range(rows):
        buffer.add(steps(value, environments), buffer_ids=list(range(environments)))
    return buffer


def everything(buffer):
    """All that a host's buffer holds and counts, and what the sampler knows."""
    parts = getattr(buffer, "buffers", [])
    counters = [
        (one._size, one._insertion_idx, one._ep_len, one._ep_return, one.last_index.tolist())
        for one in (buffer, *parts)
    ]
    arrays = {key: np.array(buffer._meta[key]).tolist() for key in FIELDS if key in buffer._meta.get_keys()}
    return counters, len(buffer), len(buffer.selection), arrays


BUFFERS = {
    1: lambda sampler: SelectiveReplayBuffer(8, sampler=sampler),
    2: lambda sampler: SelectiveVectorReplayBuffer(16, 2, sampler=sampler),
}


@pytest.mark.parametrize("environments", BUFFERS)
def test_nothing_is_stored_where_the_sampler_raises(environments) -> None:
    """The last batch was not reported on; a host that had stored already would be one ahead of the sampler for ever."""
    buffer = filled(BUFFERS[environments](Adaptive()), 5, environments)
    buffer.sample(4)
    before = everything(buffer)
    with pytest.raises(RuntimeError, match="got no feedback on the last batch"):
        buffer.add(steps(9, environments), buffer_ids=list(range(environments)))
    after = everything(buffer)
    assert after[0] == before[0]
    assert after[1:] == before[1:]
    assert len(buffer) == len(buffer.selection) == 5 * environments
    filled(buffer, 1, environments)
    assert len(buffer) == len(buffer.selection) == 6 * environments


@pytest.mark.parametrize("rows", [0, 5, 11])
@pytest.mark.parametrize("environments", BUFFERS)
def test_a_batch_that_the_host_cannot_store_changes_nothing(environments, rows) -> None:
    """It fails half-way: the counters have moved and the first fields of an old row are overwritten by then."""
    buffer = filled(BUFFERS[environments](Uniform()), rows, environments)
    before = everything(buffer)
    wrong = steps(99, environments)
    wrong.act = np.full((environments + 1, 1), 99, np.float32)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        buffer.add(wrong, buffer_ids=list(range(environments)))
    assert everything(buffer) == before
    filled(buffer, 1, environments)
    assert len(buffer) == len(buffer.selection) == min(rows + 1, 8) * environments


def test_rows_that_do_not_fit_are_not_moved_in_part() -> None:
    buffer, other = filled(SelectiveReplayBuffer(8, sampler=Uniform()), 8), ReplayBuffer(8)
    for value in range(3):
        other.add(steps(50 + value, 1, next_size=7), buffer_ids=[0])
    before = everything(buffer)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        buffer.update(other)
    assert everything(buffer) == before


def test_more_rows_than_places_are_known_once_each() -> None:
    """A larger buffer wraps around while it is moved; two slots for one place would leave another without any."""
    buffer, other = filled(SelectiveReplayBuffer(5, sampler=Uniform()), 3), filled(ReplayBuffer(12), 12)
    buffer.update(other)
    selection = buffer.selection
    assert sorted(selection._slot_of) == sorted(selection._place_of) == list(range(5))
    assert np.array_equal(selection._place_of[selection._slot_of], np.arange(5))
    drawn = np.unique(np.concatenate([buffer.sample(16)[1] for _ in range(10)]))
    assert drawn.tolist() == list(range(5))
    assert len(buffer.update(ReplayBuffer(4))) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: CachedReplayBuffer(SelectiveReplayBuffer(10, sampler=Uniform()), 2, 5),
        lambda: ReplayBufferManager([SelectiveReplayBuffer(10, sampler=Uniform()) for _ in range(2)]),
        lambda: ReplayBufferManager([SelectiveVectorReplayBuffer(10, 2, sampler=Uniform())]),
    ],
)
def test_a_manager_of_selective_buffers_is_refused(make) -> None:
    """It fails with a bare assertion, or its rows never reach the samplers."""
    with pytest.raises(UserError, match=r"cannot be part of a CachedReplayBuffer .* use SelectiveVectorReplayBuffer"):
        make()


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_part_of_a_vector_buffer_is_not_written_past_the_sampler(is_loaded) -> None:
    buffer = filled(SelectiveVectorReplayBuffer(10, 2, sampler=Uniform()), 2, 2)
    buffer = pickle.loads(pickle.dumps(buffer)) if is_loaded else buffer
    before = everything(buffer)
    with pytest.raises(UserError, match=r"use add\(batch, buffer_ids=\[…\]\) of the vector buffer"):
        buffer.buffers[0].add(steps(9, 1), buffer_ids=[0])
    with pytest.raises(UserError, match="cannot be written to"):
        buffer.buffers[1].update(filled(ReplayBuffer(5), 2))
    assert everything(buffer) == before
    filled(buffer, 1, 2)
    assert len(buffer) == len(buffer.selection) == 6


@pytest.mark.parametrize("environments", BUFFERS)
def test_a_buffer_that_was_changed_past_its_sampler_is_not_drawn_from(environments) -> None:
    buffer = filled(BUFFERS[environments](Uniform()), 4, environments)
    for part in getattr(buffer, "buffers", [buffer]):
        ReplayBuffer.reset(part)
    with pytest.raises(UserError, match=f"holds 0 transitions and its sampler has {4 * environments}"):
        buffer.sample(4)
    buffer.reset()
    filled(buffer, 3, environments)
    assert len(buffer.sample(4)[1]) == 4


@pytest.mark.parametrize("is_dataset", [False, True])
def test_recorded_transitions_fill_a_buffer(is_dataset, tmp_path) -> None:
    """As arrays, and as the HDF5 datasets that the host is given."""
    host = filled(ReplayBuffer(6), 6)
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for name in FIELDS:
            file[name] = host._meta[name]
        data = [file[name] if is_dataset else host._meta[name] for name in FIELDS]
        buffer = SelectiveReplayBuffer.from_data(*data, sampler=Adaptive(), seed=3)
    assert len(buffer) == len(buffer.selection) == 6
    batch, places = buffer.sample(32)
    buffer.discard()
    assert set(places) == set(range(6))
    assert np.array_equal(batch.rew, places)
    filled(buffer, 2)
    assert len(buffer) == len(buffer.selection) == 6


def test_recorded_transitions_for_several_environments_are_refused() -> None:
    host = filled(ReplayBuffer(6), 6)
    with pytest.raises(UserError, match=r"use SelectiveReplayBuffer\.from_data"):
        SelectiveVectorReplayBuffer.from_data(*(host._meta[name] for name in FIELDS))


def test_another_batch_in_all_places_starts_anew() -> None:
    """Masses of the transitions before would be taken for those of the new ones."""
    buffer = filled(SelectiveReplayBuffer(8, sampler=Adaptive(nu=1.0)), 8)
    pending = buffer.selection.draw(16)
    pending.gradient_norm["critic"] = torch.full((16,), 100.0)
    buffer.selection.settle()
    assert buffer.selection.sampler.probabilities().std() > 0
    buffer.set_batch(filled(ReplayBuffer(8), 8)._meta)
    assert buffer.selection.sampler.probabilities().std() < 1e-6
