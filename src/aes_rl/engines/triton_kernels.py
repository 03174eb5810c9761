"""The loops of the `triton` engine: what takes dozens of tensor operations, as one kernel each.

Every kernel has a twin made of tensor operations, in `torch_engine` or `block_tree`. Imported only where Triton is.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.engines.torch_engine import FIRST, GOLDEN, SECOND
from aes_rl.types import Counter

_GOLDEN, _FIRST, _SECOND = tl.constexpr(GOLDEN), tl.constexpr(FIRST), tl.constexpr(SECOND)


@triton.jit
def _mix(x):
    x = (x ^ (x >> 30)) * tl.full((), _FIRST, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full((), _SECOND, tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def uniform(keys, counter, out, count, BLOCK: tl.constexpr):
    """`out` [P, count] gets the numbers of `Streams.uniform`; one program a member and BLOCK elements."""
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
    """One draw of one member a program: see `BlockTree.draw`."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    number = tl.load(uniforms + member * count + position)
    floor, live = tl.load(floors + member), tl.load(size)
    smallest = tl.full((), 2.2250738585072014e-308, tl.float64)
    share = (number - floor) / tl.maximum(1 - floor, smallest)
    share = tl.minimum(tl.maximum(share, 0.0), 1.0)
    node = tl.zeros((), tl.int64)
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
    """Set one slot's mass a program; of a slot named twice every program writes the last kept mass."""
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
    """Sum the block below that a slot's ancestor stands for; programs that share an ancestor write the same sum."""
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    node = tl.load(slots + member * count + position) // DIVISOR
    masses = tl.load(below + member * below_stride + node * WIDTH + tl.arange(0, WIDTH))
    tl.store(above + member * above_stride + node, tl.sum(masses))


@triton.jit
def add_bias(output, bias, batch, width, HAS_RELU: tl.constexpr, BLOCK: tl.constexpr):
    """Add each member's bias to one row of `output` [P, batch, width] a program, and cut off at zero if asked."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    shift = tl.load(bias + (row // batch) * width + column, mask=inside)
    value = tl.load(output + row * width + column, mask=inside) + shift
    if HAS_RELU:
        value = tl.maximum(value, 0.0)
    tl.store(output + row * width + column, value, mask=inside)


@triton.jit
def norms(inputs, gradient, out, width, grads, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
          BLOCK: tl.constexpr, GRADS: tl.constexpr):  # fmt: skip
    """One row's squared gradient norm of a linear layer a program (`gradients.norms.linear`)."""
    row = tl.program_id(0).to(tl.int64)
    of_gradient = tl.arange(0, GRADS)
    slope = tl.load(gradient + row * grads + of_gradient, mask=of_gradient < grads, other=0.0)
    coefficient = 1.0 if HAS_BIAS else 0.0
    if HAS_WEIGHT:
        of_input = tl.arange(0, BLOCK)
        entered = tl.load(inputs + row * width + of_input, mask=of_input < width, other=0.0)
        coefficient += tl.sum(entered * entered)
    tl.store(out + row, coefficient * tl.sum(slope * slope))


def add_bias_(output: Float[Tensor, "P B out"], bias: Float[Tensor, "P 1 out"], has_relu: bool) -> None:
    """Output ← output + bias, and ReLU of that if asked, in place."""
    members, batch, width = output.shape
    block = triton.next_power_of_2(width)
    add_bias[(members * batch,)](output, bias, batch, width, HAS_RELU=has_relu, BLOCK=block, num_warps=1)


def linear_norms(
    inputs: Float[Tensor, "*batch in"], gradient: Float[Tensor, "*batch out"], has_weight: bool, has_bias: bool
) -> Float[Tensor, "*batch"]:
    """`gradients.norms.linear_norms`, as one kernel."""
    inputs, gradient = inputs.contiguous(), gradient.contiguous()
    out = gradient.new_empty(gradient.shape[:-1])
    width, grads = inputs.shape[-1], gradient.shape[-1]
    norms[(out.numel(),)](
        inputs, gradient, out, width, grads, HAS_WEIGHT=has_weight, HAS_BIAS=has_bias,
        BLOCK=triton.next_power_of_2(width), GRADS=triton.next_power_of_2(grads), num_warps=1,
    )  # fmt: skip
    return out


def uniform_numbers(keys: Int[Tensor, "P"], counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
    """`Streams.uniform`, as one kernel."""
    clock = counter if isinstance(counter, Tensor) else torch.tensor(counter, device=keys.device)
    numbers = torch.empty(len(keys), count, dtype=torch.float64, device=keys.device)
    if count:
        uniform[(len(keys), triton.cdiv(count, 256))](keys, clock, numbers, count, BLOCK=256)
    return numbers
