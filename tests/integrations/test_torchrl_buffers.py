"""TorchRL's buffers with our sampler: what is stored is what the sampler knows, and what would be wrong is refused."""

import multiprocessing
import pickle
import warnings

import pytest
import torch
from tensordict import TensorDict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the host warns about its own extensions while it is imported
    from torchrl.data import LazyTensorStorage, ListStorage, ReplayBuffer, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.checkpointers import (
        FlatStorageCheckpointer,
        H5StorageCheckpointer,
        NestedStorageCheckpointer,
    )
    from torchrl.data.replay_buffers.her import HERReplayBuffer
    from torchrl.data.replay_buffers.query import traj
    from torchrl.data.replay_buffers.sample_units import Sequence, Transition

    from aes_rl.integrations.torchrl import SelectiveSampler, SelectiveWriter

from aes_rl import Adaptive, Uniform
from aes_rl.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore")
SLOTS, BATCH = 40, 10


def make(config, kind=TensorDictReplayBuffer, storage=LazyTensorStorage, **options):
    sampler = SelectiveSampler(config, capacity=SLOTS)
    options = {"writer": SelectiveWriter(sampler), **options}
    return kind(storage=storage(SLOTS), sampler=sampler, batch_size=BATCH, **options), sampler


def steps(first, last):
    """Episodes of ten steps, numbered through."""
    ends = torch.zeros(last - first, 1, dtype=torch.bool)
    ends[9::10] = True
    following = {"done": ends, "reward": torch.ones(last - first, 1)}
    return TensorDict({"step": torch.arange(first, last).float(), "next": following}, [last - first])


def filled(*arguments, **options):
    """Three times as many steps as there are slots."""
    buffer, sampler = make(*arguments, **options)
    for first in range(0, 3 * SLOTS, 10):
        buffer.extend(steps(first, first + 10))
    return buffer, sampler


def write(buffer, pipe) -> None:
    """In another process."""
    try:
        buffer.extend(steps(0, 10))
        pipe.send("written")
    except UserError as error:
        pipe.send(str(error))


def test_a_shared_buffer_is_refused() -> None:
    """The others' rows were never drawn, and overwritten as if they were not there."""
    with pytest.raises(UserError, match=r"shared=True.* leave shared out"):
        make(Uniform(), shared=True)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_cannot_write_unseen(method) -> None:
    buffer, sampler = filled(Uniform())
    buffer.share()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context(method).Process(target=write, args=(buffer, theirs))
    if method == "spawn":
        with pytest.raises(UserError, match="shared between processes"):
            process.start()
        return
    process.start()
    assert ours.poll(60)
    assert "shared between processes" in ours.recv()
    process.join()
    assert torch.equal(buffer[:]["step"], torch.arange(2 * SLOTS, 3 * SLOTS).float())
    assert len(buffer) == len(sampler.selection)


def test_a_copy_of_a_buffer_goes_on_by_itself() -> None:
    buffer, sampler = filled(Adaptive())
    again = pickle.loads(pickle.dumps(buffer))
    again.extend(steps(0, 10))
    assert (again[:]["step"] < 10).sum() == 10
    assert (buffer[:]["step"] < 10).sum() < 10
    again.sample()
    assert len(sampler.selection) == len(again) == SLOTS


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Adaptive(), "Adaptive overwrites at random"),
        (Uniform(overwrite="uniform"), "Uniform overwrites at random"),
        (Adaptive(overwrite="fifo"), "Adaptive learns from single transitions"),
    ],
)
def test_sequences_from_slots_in_any_order_are_refused(config, reason) -> None:
    """Neighbouring slots hold steps of any episode; and a batch of sequences has more rows than were drawn."""
    with pytest.raises(UserError, match=f"sample_unit is Sequence, and {reason}; leave sample_unit out"):
        make(config, sample_unit=Sequence(length=3))
    make(config, sample_unit=Transition())


def test_sequences_of_uniform_replay_are_in_order() -> None:
    buffer, _ = filled(Uniform(), sample_unit=Sequence(length=3, done_key=None))
    batch = buffer.sample()
    found = batch["step"].reshape(BATCH, 3)[batch["validity_mask"].reshape(BATCH, 3).all(dim=1)]
    assert len(found) > 0
    assert torch.equal(found.diff(dim=1), torch.ones(len(found), 2))


def test_trajectories_are_queried_in_order_or_not_at_all() -> None:
    buffer, _ = filled(Adaptive())
    for one in (buffer, pickle.loads(pickle.dumps(buffer))):
        with pytest.raises(UserError, match=r"query needs transitions in order.* use Adaptive\(overwrite='fifo'\)"):
            one.query(traj.length > 0)
    ordered, _ = filled(Adaptive(overwrite="fifo"))
    found = [trajectory.data["step"] for trajectory in ordered.query(traj.length > 0)]
    assert torch.equal(torch.cat(found), torch.arange(2 * SLOTS, 3 * SLOTS).float())


def test_hindsight_from_slots_in_any_order_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"HERReplayBuffer needs transitions in order.* use Adaptive\(overwrite='fifo'\)"
    ):
        make(Adaptive(), kind=HERReplayBuffer, reward_fn=lambda batch: batch["next", "reward"])
    make(Adaptive(overwrite="fifo"), kind=HERReplayBuffer, reward_fn=lambda batch: batch["next", "reward"])


@pytest.mark.parametrize("kind", [FlatStorageCheckpointer, NestedStorageCheckpointer, H5StorageCheckpointer])
def test_a_checkpointer_that_drops_next_observations_is_refused(kind, tmp_path) -> None:
    """It loads the next slot's observation in their place, which is one of another episode."""
    line = rf"{kind.__name__} needs transitions in order.* use Adaptive\(overwrite='fifo'\)"
    for checkpointer in (kind, kind()):
        with pytest.raises(UserError, match=line):
            make(Adaptive(), checkpointer=checkpointer)
    make(Adaptive(overwrite="fifo"), checkpointer=kind())
    buffer, _ = make(Adaptive())
    buffer.extend(with_observations(steps(0, 10)))
    buffer.storage.checkpointer = kind()
    with pytest.raises(UserError, match=line):
        buffer.dumps(tmp_path)


def with_observations(rows):
    ends = {name: torch.zeros(len(rows), 1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    rows.update(ends | {"observation": rows["step"].unsqueeze(1)})
    rows["next"].update(ends | {"observation": rows["step"].unsqueeze(1) + 1, "done": rows["next", "done"]})
    return rows


def test_a_generator_is_refused() -> None:
    """It was taken and ignored: two seeds gave the same draws."""
    with pytest.raises(UserError, match="leave generator out and give SelectiveSampler a seed"):
        make(Uniform(), generator=torch.Generator().manual_seed(1))
    buffer, _ = make(Uniform())
    with pytest.raises(UserError, match="leave generator out"):
        buffer.set_rng(torch.Generator())


@pytest.mark.parametrize("rows", [7, 95])
@pytest.mark.parametrize("make_tree", [lambda a, b: (a, b), lambda a, b: {"a": a, "b": {"c": b}}])
def test_pytrees_are_stored_row_by_row(make_tree, rows) -> None:
    """The number of leaves was taken for the number of rows."""
    buffer, sampler = make(Uniform(), kind=ReplayBuffer)
    slots = buffer.extend(make_tree(torch.arange(rows).float(), 2 * torch.arange(rows).float().unsqueeze(1)))
    held = min(rows, SLOTS)
    assert len(slots) == rows
    assert len(buffer) == len(sampler.selection) == held
    leaves = torch.utils._pytree.tree_leaves(buffer.sample())
    assert torch.equal(2 * leaves[0], leaves[1].squeeze(1))
    assert (leaves[0] >= rows - held).all()


@pytest.mark.parametrize(
    ("storage", "data", "error", "line"),
    [
        (LazyTensorStorage, (torch.zeros(7, 2), torch.zeros(5)), UserError, r"have \[5, 7\] rows"),
        (ListStorage, (torch.zeros(7, 2), torch.zeros(7)), UserError, "takes a list .* use LazyTensorStorage"),
        (LazyTensorStorage, torch.zeros(0, 2), RuntimeError, "Expected at least one element in extend"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is(storage, data, error, line) -> None:
    buffer, sampler = make(Uniform(), kind=ReplayBuffer, storage=storage)
    with pytest.raises(error, match=line):
        buffer.extend(data)
    assert len(buffer) == len(sampler.selection) == 0


def test_a_forgotten_writer_is_named() -> None:
    """The sampler was given no row, and said that the replay was empty."""
    with pytest.raises(UserError, match=r"no SelectiveWriter.* use writer=SelectiveWriter\(sampler\)"):
        make(Uniform(), writer=None)


def test_the_writer_of_another_sampler_is_noticed() -> None:
    buffer, _ = filled(Uniform())
    buffer.set_sampler(SelectiveSampler(Uniform(), capacity=SLOTS))
    with pytest.raises(UserError, match="the storage holds 40 transitions and the sampler has 0"):
        buffer.sample()


@pytest.mark.parametrize("is_emptied", [False, True])
def test_an_empty_buffer_raises_what_the_host_raises(is_emptied) -> None:
    said = []
    for buffer in (make(Adaptive())[0], TensorDictReplayBuffer(storage=LazyTensorStorage(SLOTS), batch_size=BATCH)):
        if is_emptied:
            buffer.extend(steps(0, 10))
            buffer.empty()
        with pytest.raises(RuntimeError, match="empty storage") as caught:
            buffer.sample()
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]


def test_batches_of_before_an_emptying_are_not_taken_for_new_ones() -> None:
    """A host that draws ahead still hands them out; their rows were reported for the slots of other batches."""
    buffer, sampler = filled(Adaptive())
    old = [int(buffer.sample()["draw"][0]) for _ in range(3)]
    held = [sampler.selection.queue[number] for number in old]
    buffer.empty()
    buffer.extend(steps(0, 10))
    new = [int(buffer.sample()["draw"][0]) for _ in range(3)]
    assert not set(old) & set(new)
    for pending in held:
        pending.gradient_norm["critic"] = torch.ones(BATCH)
        sampler.selection.report(pending)
    assert set(sampler.selection.queue) == set(new)
