"""The sums of adaptive experience selection as GPU kernels; the reference implementation is in `accumulator`."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor


def accumulate(
    sums: Float[Tensor, "p N"],
    slots: Int[Tensor, "p B"],
    probabilities: Float[Tensor, "p B"],
    squared_norms: Float[Tensor, "p B"],
    is_current: Bool[Tensor, "p B"],
    nu: Float[Tensor, "p 1"],
) -> Float[Tensor, "p B"]:
    """Add d(i)/p(i) for every draw; return the masses of the drawn slots. Launches two kernels."""
    squared_norms = torch.where(is_current, squared_norms, 0)
    slots, probabilities, squared_norms = slots.contiguous(), probabilities.contiguous(), squared_norms.contiguous()
    totals, masses = torch.empty_like(probabilities), torch.empty_like(probabilities)
    count = slots.shape[1]
    block = triton.next_power_of_2(count)
    _accumulate[tuple(slots.shape)](
        sums, sums.stride(0), slots, probabilities, squared_norms, totals, masses, nu, count, BLOCK=block, num_warps=1
    )
    _scatter[(len(slots),)](sums, sums.stride(0), slots, totals, count, BLOCK=block)
    return masses


@triton.jit
def _scatter(sums, stride, slots, totals, count, BLOCK: tl.constexpr):
    """Store the new sums of one member's slots; all repetitions of a slot have the same sum."""
    member = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < count
    slot = tl.load(slots + member * count + column, mask=inside, other=0)
    total = tl.load(totals + member * count + column, mask=inside)
    tl.store(sums + member * stride + slot, total, mask=inside)


@triton.jit
def _accumulate(sums, stride, slots, probabilities, squared_norms, totals, masses, nu, count, BLOCK: tl.constexpr):
    """One draw per program: the slot's new sum, over all draws of that slot, and its mass.

    Nothing is added in place: repeated draws would race, and their order would change the rounding.
    """
    member, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < count
    slot = tl.load(slots + member * count + position)
    others = tl.load(slots + member * count + column, mask=inside, other=-1)
    norm = tl.load(squared_norms + member * count + column, mask=inside, other=0.0).to(tl.float64)
    chance = tl.load(probabilities + member * count + column, mask=inside, other=1.0)
    total = tl.load(sums + member * stride + slot) + tl.sum(tl.where(others == slot, norm / chance, 0.0))
    tl.store(totals + member * count + position, total)
    tl.store(masses + member * count + position, tl.sqrt(total + tl.load(nu + member)))
