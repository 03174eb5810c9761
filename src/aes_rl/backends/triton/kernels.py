"""Random numbers, sum tree, placement and rows as one kernel each instead of dozens of tensor operations.

The reference implementation of every kernel, with tensor operations, is in `aes_rl.backends.torch`. This module is
imported only if Triton is installed.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.streams import FIRST, GOLDEN, SECOND
from aes_rl.types import Counter

_GOLDEN, _FIRST, _SECOND = tl.constexpr(GOLDEN), tl.constexpr(FIRST), tl.constexpr(SECOND)


@triton.jit
def _mix(x):
    x = (x ^ (x >> 30)) * tl.full((), _FIRST, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full((), _SECOND, tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def uniform(keys, counter, out, count, BLOCK: tl.constexpr):
    """Fill `out` [P, count] with the numbers of `Streams.uniform`; one program per member and BLOCK elements."""
    member = tl.program_id(0)
    golden = tl.full((), _GOLDEN, tl.uint64)
    start = _mix(tl.load(keys + member).to(tl.uint64) + tl.load(counter).to(tl.uint64) * golden)
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bits = _mix(start + (element + 1).to(tl.uint64) * golden)
    odd = ((bits >> 12) * 2 + 1).to(tl.int64).to(tl.float64)
    tl.store(out + member * count + element, odd * 1.1102230246251565e-16, mask=element < count)


@triton.jit
def draw(
    uniforms, floors, size, level_0, level_1, level_2, level_3, blocks_0, blocks_1, blocks_2, blocks_3,
    nodes_0, nodes_1, nodes_2, nodes_3, slots, probabilities, count,
    LEVELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`BlockTree.draw`, one draw of one member per program."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    number = tl.load(uniforms + member * count + position)
    floor, live = tl.load(floors + member), tl.maximum(tl.load(size), 1)
    smallest = tl.full((), 2.2250738585072014e-308, tl.float64)
    share = (number - floor) / tl.maximum(1 - floor, smallest)
    share = tl.minimum(tl.maximum(share, 0.0), 1.0)
    node = tl.zeros((), tl.int64)
    total = tl.full((), 1.0, tl.float64)
    if floor < 1:  # a member that draws uniformly does not use masses
        total = tl.zeros((), tl.float64)
        wanted = total
        for down in tl.static_range(LEVELS):
            if LEVELS - 1 - down == 3:
                row, nodes = level_3 + (member * blocks_3 + node) * WIDTH, nodes_3
            elif LEVELS - 1 - down == 2:
                row, nodes = level_2 + (member * blocks_2 + node) * WIDTH, nodes_2
            elif LEVELS - 1 - down == 1:
                row, nodes = level_1 + (member * blocks_1 + node) * WIDTH, nodes_1
            else:
                row, nodes = level_0 + (member * blocks_0 + node) * WIDTH, nodes_0
            masses = tl.load(row + column)
            if down == 0:
                total = tl.sum(masses)
                wanted = share * total
            child = tl.minimum(tl.sum((tl.cumsum(masses) <= wanted).to(tl.int64)), WIDTH - 1)
            wanted -= tl.sum(tl.where(column < child, masses, 0.0))
            node = tl.minimum(node * WIDTH + child, nodes - 1)
    by_mass = tl.minimum(node, live - 1)
    by_floor = tl.minimum((number / tl.maximum(floor, smallest) * live.to(tl.float64)).to(tl.int64), live - 1)
    slot = tl.where(number < floor, by_floor, by_mass)
    mass = tl.load(level_0 + member * blocks_0 * WIDTH + slot)
    tl.store(slots + member * count + position, slot)
    chance = (1 - floor) * (mass / total) + floor / live.to(tl.float64)
    tl.store(probabilities + member * count + position, chance)


@triton.jit
def write_leaves(leaves, stride, slots, masses, kept, count, HAS_KEPT: tl.constexpr, BLOCK: tl.constexpr):
    """Set the mass of one slot per program; for a repeated slot every program writes the last kept mass."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < count
    slot = tl.load(slots + member * count + position)
    others = tl.load(slots + member * count + column, mask=inside, other=-1)
    counts = inside & (others == slot)
    if HAS_KEPT:
        counts = counts & (tl.load(kept + member * count + column, mask=inside, other=0) != 0)
    last = tl.max(tl.where(counts, column, -1))
    mass = tl.load(masses + member * count + tl.maximum(last, 0))
    tl.store(leaves + member * stride + slot, mass, mask=last >= 0)


@triton.jit
def sum_blocks(below, below_stride, above, above_stride, slots, count, DIVISOR: tl.constexpr, WIDTH: tl.constexpr):
    """Recompute the ancestor of one slot per program; programs that share an ancestor write the same sum."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    node = tl.load(slots + member * count + position) // DIVISOR
    masses = tl.load(below + member * below_stride + node * WIDTH + tl.arange(0, WIDTH))
    tl.store(above + member * above_stride + node, tl.sum(masses))


@triton.jit
def write_one(
    slots, masses, kept, level_0, level_1, level_2, level_3, blocks_0, blocks_1, blocks_2, blocks_3,
    HAS_KEPT: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Set the mass of one slot of one member per program, and the sums above it."""
    member = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    node, value = tl.load(slots + member), tl.load(masses + member)
    is_written = tl.load(kept + member) != 0 if HAS_KEPT else True
    for depth in tl.static_range(LEVELS):
        if depth == 0:
            level = level_0 + member * blocks_0 * WIDTH
        elif depth == 1:
            level = level_1 + member * blocks_1 * WIDTH
        elif depth == 2:
            level = level_2 + member * blocks_2 * WIDTH
        else:
            level = level_3 + member * blocks_3 * WIDTH
        block = node // WIDTH
        others = tl.load(level + block * WIDTH + column)
        tl.store(level + node, value, mask=is_written)
        value = tl.sum(tl.where(column == node % WIDTH, value, others))
        node = block


@triton.jit
def place(uniforms, kept, is_fifo, is_adaptive, clock, stamps, slots, capacity):
    """`TorchDistribution.place` for one transition, one member per program."""
    member = tl.program_id(0).to(tl.int64)
    now = tl.load(clock)
    spared = tl.where(tl.load(is_adaptive + member) != 0, tl.load(kept + member), capacity)
    free = tl.maximum(tl.where(spared < capacity, capacity - 1, capacity), 1)
    chosen = tl.minimum((tl.load(uniforms + member * 2 + 1) * free.to(tl.float64)).to(tl.int64), free - 1)
    chosen = tl.minimum(tl.where(chosen >= spared, chosen + 1, chosen), capacity - 1)
    has_turn = (tl.load(is_fifo + member) != 0) | (now < capacity)
    slot = tl.where(has_turn, now % capacity, chosen)
    tl.store(slots + member, slot)
    tl.store(stamps + member * capacity + slot, (now + 1).to(tl.int32))


@triton.jit
def write_row(rows, slots, packed, capacity, width, BLOCK: tl.constexpr):
    """Write the packed row of one member into its slot."""
    member = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    row = rows + (member * capacity + tl.load(slots + member)) * width
    tl.store(row + column, tl.load(packed + member * width + column, mask=inside), mask=inside)


@triton.jit
def read_row(rows, slots, out, capacity, width, count, BLOCK: tl.constexpr):
    """Copy the row of one drawn slot to `out`."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < width
    slot = tl.load(slots + member * count + position)
    row = tl.load(rows + (member * capacity + slot) * width + column, mask=inside)
    tl.store(out + (member * count + position) * width + column, row, mask=inside)


def uniform_numbers(keys: Int[Tensor, "P"], counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
    """`Streams.uniform`, as one kernel."""
    clock = counter if isinstance(counter, Tensor) else torch.tensor(counter, device=keys.device)
    numbers = torch.empty(len(keys), count, dtype=torch.float64, device=keys.device)
    if count:
        uniform[(len(keys), triton.cdiv(count, 256))](keys, clock, numbers, count, BLOCK=256)
    return numbers


def placed(
    uniforms: Float[Tensor, "P 2"],
    kept: Int[Tensor, "P 1"],
    is_fifo: Bool[Tensor, "P 1"],
    is_adaptive: Bool[Tensor, "P 1"],
    clock: Int[Tensor, ""],
    stamps: Int[Tensor, "P N"],
) -> Int[Tensor, "P 1"]:
    """The slot of every member for its next transition, stamped."""
    slots = torch.empty(len(uniforms), 1, dtype=torch.int64, device=uniforms.device)
    place[(len(uniforms),)](uniforms, kept, is_fifo, is_adaptive, clock, stamps, slots, stamps.shape[1], num_warps=1)
    return slots


def write_rows(rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P 1"], packed: Float[Tensor, "P D"]) -> None:
    """`AbstractBackend.write_rows`, as one kernel."""
    _, capacity, width = rows.shape
    block = triton.next_power_of_2(width)
    write_row[(len(rows),)](rows, slots.contiguous(), packed.contiguous(), capacity, width, BLOCK=block, num_warps=1)


def read_rows(rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P B"]) -> Float[Tensor, "P B D"]:
    """`AbstractBackend.read_rows`, as one kernel."""
    _, capacity, width = rows.shape
    out = rows.new_empty(*slots.shape, width)
    block = triton.next_power_of_2(width)
    read_row[tuple(slots.shape)](
        rows, slots.contiguous(), out, capacity, width, slots.shape[1], BLOCK=block, num_warps=1
    )
    return out
