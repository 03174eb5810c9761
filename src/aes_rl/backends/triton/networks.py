"""Layers, norms and optimiser of P members' networks: bias, ReLU and norms are fused into the matrix product.

With a matrix library, biases, ReLUs, their derivatives and sums take about fifty more kernels, and for a few hundred
rows each takes as long as a product. The reference implementations are `_Pass` in `gradients.perceptron` and torch's
Adam. This module is imported only if Triton is installed.

Products follow `torch.get_float32_matmul_precision`: at "highest", every operand is split into the sum of two 19-bit
numbers, with no more rounding error than float32; at "high" or "medium" it is rounded to one.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


class Tile(NamedTuple):
    """The tile of a product that one program computes."""

    rows: int
    columns: int
    inner: int
    """Elements of the summed axis per iteration."""
    warps: int
    stages: int
    """Pipeline stages: loads in flight at a time."""


class Tiles(NamedTuple):
    """The tiles of the three kinds of product."""

    forward: Tile
    backward: Tile
    parameters: Tile
    parameters_of_large: Tile
    """Of batches from `_LARGE`."""


_LARGE = 256

# Tuned on Hopper, whose matrix instruction needs four warps and float32 operands contiguous along the summed axis,
# as in the backward pass. Elsewhere two warps and the older instruction are up to three times as fast.
_HOPPER = 9
_TILES = {
    "tf32": Tiles(Tile(64, 64, 32, 2, 3), Tile(64, 64, 32, 4, 3), Tile(32, 128, 32, 2, 3), Tile(32, 256, 32, 4, 3)),
    "tf32x3": Tiles(Tile(32, 64, 32, 2, 3), Tile(128, 64, 32, 8, 3), Tile(32, 128, 32, 2, 3), Tile(32, 128, 32, 2, 3)),
}


@triton.jit
def _add_product(total, left, left_row, right, right_row, right_column, row, column, rows, columns,
                 DEPTH: tl.constexpr, PRECISION: tl.constexpr, INNER: tl.constexpr):  # fmt: skip
    """`total` + left · right for one tile."""
    step = tl.arange(0, INNER)
    for start in range(0, DEPTH, INNER):
        at = start + step
        a = tl.load(left + row[:, None] * left_row + at[None, :], (row < rows)[:, None] & (at < DEPTH)[None, :], 0.0)
        b = tl.load(
            right + at[:, None] * right_row + column[None, :] * right_column,
            (at < DEPTH)[:, None] & (column < columns)[None, :],
            0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total


@triton.jit
def product(
    left, left_member, left_row, late, late_member, late_row, right, right_member, right_row, right_column,
    bias, entered, entered_member, entered_row, out, out_member, out_row,
    rows, columns, share, late_share,
    DEPTH: tl.constexpr, LATE_DEPTH: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RELU: tl.constexpr, HAS_MASK: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """One tile per program of [left, late] · right, with bias and ReLU, or zero where `entered` is not positive."""
    copy = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    right += copy * right_member
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    total = _add_product(total, left + (copy // share) * left_member, left_row, right, right_row, right_column,
                         row, column, rows, columns, DEPTH, PRECISION, INNER)  # fmt: skip
    if LATE_DEPTH > 0:
        total = _add_product(
            total, late + (copy // late_share) * late_member, late_row,
            right + DEPTH * right_row, right_row, right_column,
            row, column, rows, columns, LATE_DEPTH, PRECISION, INNER,
        )  # fmt: skip
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    if HAS_BIAS:
        total += tl.load(bias + copy * columns + column, column < columns, 0.0)[None, :]
    if HAS_RELU:
        total = tl.maximum(total, 0.0)
    if HAS_MASK:
        passed = tl.load(entered + copy * entered_member + row[:, None] * entered_row + column[None, :], inside, 0.0)
        total = tl.where(passed > 0, total, 0.0)
    tl.store(out + copy * out_member + row[:, None] * out_row + column[None, :], total, inside)


@triton.jit
def parameter_gradients(
    inputs, inputs_member, inputs_row, late, late_member, late_row, gradient, gradient_member, gradient_row,
    of_weight, of_bias, width, late_width, columns, share, late_share, tiles,
    BATCH: tl.constexpr, HAS_LATE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """One tile per program of [inputs, late]ᵀ · gradient; the last tile is the sum of the gradient, for the bias."""
    tile, copy = tl.program_id(0), tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    gradient += copy * gradient_member
    step = tl.arange(0, INNER)
    if tile == tl.num_programs(0) - 1:
        sums = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, BATCH, INNER):
            at = start + step
            sums += tl.sum(
                tl.load(
                    gradient + at[:, None] * gradient_row + column[None, :],
                    (at < BATCH)[:, None] & (column < columns)[None, :],
                    0.0,
                ),
                axis=0,
            )
        tl.store(of_bias + copy * columns + column, sums, column < columns)
        return
    row = tile * ROWS + tl.arange(0, ROWS)
    entered, entered_row, limit = inputs + (copy // share) * inputs_member, inputs_row, width
    first = tl.zeros((), tl.int32)
    if HAS_LATE:
        is_late = tile >= tiles
        if is_late:
            entered, entered_row, limit = late + (copy // late_share) * late_member, late_row, late_width
            row -= tiles * ROWS
            first += width
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, BATCH, INNER):
        at = start + step
        a = tl.load(
            entered + at[:, None] * entered_row + row[None, :], (at < BATCH)[:, None] & (row < limit)[None, :], 0.0
        )
        b = tl.load(
            gradient + at[:, None] * gradient_row + column[None, :],
            (at < BATCH)[:, None] & (column < columns)[None, :],
            0.0,
        )
        total = tl.dot(tl.trans(a), b, total, input_precision=PRECISION)
    height = width + late_width
    target = of_weight + copy * height * columns + (first + row)[:, None] * columns + column[None, :]
    tl.store(target, total, (row < limit)[:, None] & (column < columns)[None, :])


@triton.jit
def _square_sums(rows, inside, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(rows[:, None] + column[None, :], inside[:, None] & (column < WIDTH)[None, :], 0.0)
    return tl.sum(values * values, axis=1)


@triton.jit
def norms(
    inputs, inputs_member, inputs_row, late, late_member, late_row, hidden, gradients, last, out, count, batch, share,
    INPUTS: tl.constexpr, LATE: tl.constexpr, LATE_LAYER: tl.constexpr, LAYERS: tl.constexpr,
    WIDTH_1: tl.constexpr, WIDTH_2: tl.constexpr, WIDTH_3: tl.constexpr, LAST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Squared gradient norms over all layers, ROWS samples per program: Σ (1 + ‖input‖²)·‖gradient‖²."""
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = place < count
    member, row = place // batch // share, place % batch
    coefficient = 1.0 + _square_sums(inputs + member * inputs_member + row * inputs_row, inside, INPUTS, BLOCK)
    total = tl.zeros((ROWS,), tl.float32)
    offset = place * (WIDTH_1 + WIDTH_2 + WIDTH_3)
    for layer in tl.static_range(LAYERS):
        if LATE > 0 and layer == LATE_LAYER:
            coefficient += _square_sums(late + member * late_member + row * late_row, inside, LATE, BLOCK)
        if layer == LAYERS - 1:
            total += coefficient * _square_sums(last + place * LAST, inside, LAST, BLOCK)
        elif layer == 0:
            total += coefficient * _square_sums(gradients + offset, inside, WIDTH_1, BLOCK)
            coefficient = 1.0 + _square_sums(hidden + offset, inside, WIDTH_1, BLOCK)
            offset += WIDTH_1
        elif layer == 1:
            total += coefficient * _square_sums(gradients + offset, inside, WIDTH_2, BLOCK)
            coefficient = 1.0 + _square_sums(hidden + offset, inside, WIDTH_2, BLOCK)
            offset += WIDTH_2
        else:
            total += coefficient * _square_sums(gradients + offset, inside, WIDTH_3, BLOCK)
            coefficient = 1.0 + _square_sums(hidden + offset, inside, WIDTH_3, BLOCK)
    tl.store(out + place, total, inside)


@triton.jit
def adam(
    parameters, gradients, means, squares, following, steps, size, rate, decay, target_rate,
    HAS_TARGET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step of Adam for BLOCK parameters per program, followed by the update of their targets."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    step = tl.load(steps).to(tl.float64)
    # β^t = exp(t·log β) in float64, because 1 − β^t loses precision for small t.
    first = (1 - tl.exp(step * -0.10536051565782628)).to(tl.float32)
    second = (1 - tl.exp(step * -0.0010005003335835335)).to(tl.float32)
    value = tl.load(parameters + at, inside, 0.0)
    slope = tl.load(gradients + at, inside, 0.0) + decay * value
    mean = tl.load(means + at, inside, 0.0)
    mean += 0.1 * (slope - mean)
    square = 0.999 * tl.load(squares + at, inside, 0.0) + 0.001 * slope * slope
    value -= rate / first * mean / (tl.sqrt(square) / tl.sqrt(second) + 1e-8)
    tl.store(parameters + at, value, inside)
    tl.store(means + at, mean, inside)
    tl.store(squares + at, square, inside)
    if HAS_TARGET:
        followed = tl.load(following + at, inside, 0.0)
        tl.store(following + at, followed + target_rate * (value - followed), inside)


def layer(
    inputs: Float[Tensor, "P B in"],
    late: Float[Tensor, "P B late"] | None,
    weight: Float[Tensor, "K all_in out"],
    bias: Float[Tensor, "K 1 out"],
    out: Float[Tensor, "K B out"],
    has_relu: bool,
) -> None:
    """Out ← [inputs, late] · weight + bias, with an optional ReLU. The K/P copies of a member share its inputs."""
    _product(inputs, late, weight, out, bias=bias, has_relu=has_relu)


def input_gradient(
    gradient: Float[Tensor, "K B out"],
    weight: Float[Tensor, "K in out"],
    entered: Float[Tensor, "K B in"] | None,
    out: Float[Tensor, "K B in"],
) -> None:
    """Out ← gradient · weightᵀ, and zero where the ReLU output `entered`, if given, is zero."""
    _product(gradient, None, weight.transpose(1, 2), out, entered=entered)


def layer_gradients(
    inputs: Float[Tensor, "P B in"],
    late: Float[Tensor, "P B late"] | None,
    gradient: Float[Tensor, "K B out"],
    of_weight: Float[Tensor, "K all_in out"],
    of_bias: Float[Tensor, "K 1 out"],
) -> None:
    """Write the gradients of a layer's weight and bias into `of_weight` and `of_bias`."""
    copies, batch, columns = gradient.shape
    width, late_width = inputs.shape[-1], 0 if late is None else late.shape[-1]
    own = _tiles(gradient)
    tile = own.parameters if batch < _LARGE else own.parameters_of_large
    block, across, inner, warps, stages = _cut(tile, width, columns)
    tiles = triton.cdiv(width, block)
    parameter_gradients[(tiles + triton.cdiv(late_width, block) + 1, triton.cdiv(columns, across), copies)](
        *_rows(inputs), *_rows(late, inputs), *_rows(gradient), of_weight, of_bias, width, late_width, columns,
        *_shares(copies, inputs, late), tiles, BATCH=batch, HAS_LATE=late is not None, PRECISION=_precision(),
        ROWS=block, COLUMNS=across, INNER=inner, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def squared_norms(
    inputs: Float[Tensor, "P B in"],
    late: Float[Tensor, "P B late"] | None,
    late_layer: int,
    hidden: list[Float[Tensor, "K B width"]],
    gradients: Float[Tensor, "K B widths"],
    last: Float[Tensor, "K B out"],
    out: Float[Tensor, "K B"],
) -> None:
    """Out ← the squared gradient norm of every sample over a whole network, from layer inputs and output gradients.

    `hidden` are views of one tensor with the layout of `gradients`: the hidden layers concatenated.
    """
    copies, batch, _ = last.shape
    widths = [part.shape[-1] for part in hidden] + [0] * (3 - len(hidden))
    late_width = 0 if late is None else late.shape[-1]
    norms[(triton.cdiv(copies * batch, 2),)](
        *_rows(inputs), *_rows(late, inputs), hidden[0] if hidden else last, gradients, last, out,
        copies * batch, batch, copies // len(inputs),
        INPUTS=inputs.shape[-1], LATE=late_width, LATE_LAYER=late_layer, LAYERS=len(hidden) + 1,
        WIDTH_1=widths[0], WIDTH_2=widths[1], WIDTH_3=widths[2], LAST=last.shape[-1], ROWS=2,
        BLOCK=triton.next_power_of_2(max(inputs.shape[-1], late_width, *widths, last.shape[-1])), num_warps=1,
    )  # fmt: skip


def adam_(
    block: Float[Tensor, "size"],
    mean: Float[Tensor, "size"],
    square: Float[Tensor, "size"],
    steps: Float[Tensor, ""],
    learning_rate: float,
    weight_decay: float,
    following: Float[Tensor, "size"] | None,
    target_rate: float,
) -> None:
    """One step of Adam along the block's gradient, at step number `steps`; then update its target, if any."""
    adam[(triton.cdiv(block.numel(), 1024),)](
        block, block.grad, mean, square, block if following is None else following, steps, block.numel(),
        learning_rate, weight_decay, target_rate, HAS_TARGET=following is not None, BLOCK=1024, num_warps=4,
    )  # fmt: skip


def _product(
    left: Float[Tensor, "P B in"],
    late: Float[Tensor, "P B late"] | None,
    right: Float[Tensor, "K all_in out"],
    out: Float[Tensor, "K B out"],
    bias: Float[Tensor, "K 1 out"] | None = None,
    entered: Float[Tensor, "K B out"] | None = None,
    has_relu: bool = False,
) -> None:
    copies, rows, columns = out.shape
    tiles = _tiles(out)
    tall, across, inner, warps, stages = _cut(tiles.forward if entered is None else tiles.backward, rows, columns)
    product[(triton.cdiv(rows, tall), triton.cdiv(columns, across), copies)](
        *_rows(left), *_rows(late, left), right, *right.stride(), out if bias is None else bias, *_rows(entered, out),
        *_rows(out), rows, columns, *_shares(copies, left, late),
        DEPTH=left.shape[-1], LATE_DEPTH=0 if late is None else late.shape[-1],
        HAS_BIAS=bias is not None, HAS_RELU=has_relu, HAS_MASK=entered is not None,
        PRECISION=_precision(), ROWS=tall, COLUMNS=across, INNER=inner, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def _rows(tensor: Tensor | None, instead: Tensor | None = None) -> tuple[Tensor, int, int]:
    """A tensor with the strides of its members and rows; `instead`, which is not read, replaces None."""
    present = instead if tensor is None else tensor
    assert present is not None
    assert present.stride(-1) == 1 or present.shape[-1] == 1
    return present, present.stride(0), present.stride(1)


def _shares(copies: int, inputs: Tensor, late: Tensor | None) -> tuple[int, int]:
    """Number of copies of a network that share the same inputs, and the same late inputs."""
    return copies // len(inputs), 1 if late is None else copies // len(late)


def _cut(tile: Tile, rows: int, columns: int) -> Tile:
    """A tile no larger than the matrix; its sides are powers of two that the matrix unit supports."""
    return tile._replace(rows=_side(rows, tile.rows), columns=_side(columns, tile.columns))


def _side(size: int, most: int) -> int:
    return max(16, min(most, int(triton.next_power_of_2(size))))


def _tiles(tensor: Tensor) -> Tiles:
    """The tiles for a device. Without Hopper's instruction, the backward pass takes those of the forward pass."""
    tiles = _TILES[_precision()]
    return tiles if _capability(tensor.device) == _HOPPER else tiles._replace(backward=tiles.forward)


@cache
def _capability(device: torch.device) -> int:
    """Major compute capability; that of Hopper for Triton's interpreter, so that it computes the same tiles."""
    return torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else _HOPPER


def _precision() -> str:
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
