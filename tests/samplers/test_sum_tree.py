"""Both trees against a plain array of masses."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_rl.backends.numba.tree import NumbaTree
from aes_rl.backends.torch.tree import BlockTree


def make_tree(kind, members, capacity):
    return NumbaTree(members, capacity) if kind == "numba" else BlockTree(members, capacity, "cpu", width=4)


def view(kind, tensor):
    return tensor.numpy() if kind == "numba" else tensor


def draw(kind, tree, uniforms, floor, size):
    amount = size if kind == "numba" else torch.tensor(size)
    slots, probabilities = tree.draw(view(kind, uniforms), view(kind, floor), amount)
    return torch.as_tensor(slots), torch.as_tensor(probabilities)


@pytest.mark.parametrize("kind", ["numba", "block"])
@given(
    members=st.integers(1, 3),
    capacity=st.integers(1, 400),
    writes=st.integers(1, 6),
    batch=st.integers(1, 300),
    spread=st.sampled_from([0.0, 1.0, 20.0]),
    floor=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_trees_equal_a_plain_array(kind, members, capacity, writes, batch, spread, floor, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    tree = make_tree(kind, members, capacity)
    plain = torch.ones(members, capacity, dtype=torch.float64)
    tree.refill(slice(0, members), plain)
    for _ in range(writes):
        slots = torch.randint(0, capacity, (members, batch), generator=generator)
        masses = (spread * torch.randn(members, batch, generator=generator, dtype=torch.float64)).exp()
        for member in range(members):
            for slot, mass in zip(slots[member], masses[member], strict=True):
                plain[member, slot] = mass
        tree.write(slice(0, members), view(kind, slots), masses)
    assert torch.equal(tree.masses, plain)
    totals = plain.sum(1, keepdim=True)
    assert torch.allclose(tree.totals, totals, rtol=1e-12)

    uniforms = torch.rand(members, 64, generator=generator, dtype=torch.float64)
    floors = torch.full((members, 1), floor, dtype=torch.float64)
    slots, probabilities = draw(kind, tree, uniforms, floors, capacity)
    expected = ((1 - floor) * plain / totals + floor / capacity).gather(1, slots)
    assert torch.allclose(probabilities, expected, rtol=1e-9)
    for member in range(members):
        edges = np.concatenate([[0.0], np.cumsum(plain[member].numpy())]) / totals[member].item()
        for u, slot in zip(uniforms[member].tolist(), slots[member].tolist(), strict=True):
            if u < floor:
                assert slot == min(int(u / floor * capacity), capacity - 1)
            elif floor < 1:
                fraction = (u - floor) / (1 - floor)
                assert edges[slot] - 1e-12 <= fraction <= edges[slot + 1] + 1e-12


@pytest.mark.parametrize("kind", ["numba", "block"])
def test_a_rebuilt_tree_is_the_tree_that_was_written(kind) -> None:
    """Bitwise, so that a loaded checkpoint draws what the saved run would have drawn."""
    generator = torch.Generator().manual_seed(0)
    written, rebuilt = make_tree(kind, 2, 1000), make_tree(kind, 2, 1000)
    for _ in range(50):
        slots = torch.randint(0, 1000, (2, 64), generator=generator)
        written.write(slice(0, 2), view(kind, slots), torch.rand(2, 64, generator=generator, dtype=torch.float64))
    rebuilt.refill(slice(0, 2), written.masses.clone())
    assert torch.equal(written.totals, rebuilt.totals)
    uniforms = torch.rand(2, 1000, generator=generator, dtype=torch.float64)
    none = torch.zeros(2, 1, dtype=torch.float64)
    assert torch.equal(draw(kind, written, uniforms, none, 1000)[0], draw(kind, rebuilt, uniforms, none, 1000)[0])


@pytest.mark.parametrize("kind", ["numba", "block"])
@pytest.mark.parametrize("live", [1, 15, 16, 17, 255, 257, 999])
def test_extreme_uniforms_stay_among_live_slots(kind, live) -> None:
    """Masses over 40 orders of magnitude and uniforms at both ends: rounding must not walk into empty slots."""
    tree = make_tree(kind, 1, 1000)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        masses = (20 * torch.randn(1, live, generator=generator, dtype=torch.float64)).exp()
        tree.refill(slice(0, 1), masses)
        ends = torch.tensor([[2.0**-53, 0.5, 1 - 2.0**-53, 1 - 2.0**-52, 1 - 2.0**-40]], dtype=torch.float64)
        slots, _ = draw(kind, tree, ends, torch.zeros(1, 1, dtype=torch.float64), live)
        assert int(slots.min()) >= 0
        assert int(slots.max()) < live


def test_slices_of_members_do_not_touch_the_others() -> None:
    for kind in ("numba", "block"):
        tree = make_tree(kind, 3, 40)
        tree.refill(slice(0, 3), torch.ones(3, 40, dtype=torch.float64))
        tree.write(slice(1, 2), view(kind, torch.tensor([[5, 5]])), torch.tensor([[9.0, 7.0]], dtype=torch.float64))
        assert tree.totals.flatten().tolist() == [40.0, 46.0, 40.0]
        tree.refill(slice(2, 3), torch.full((1, 10), 2.0, dtype=torch.float64))
        assert tree.totals.flatten().tolist() == [40.0, 46.0, 50.0]
