"""The loops as plain tensor operations: any device, no reading on the host, fit for capture in a CUDA graph."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.engines import forecasts
from aes_rl.engines.engine import AbstractEngine
from aes_rl.engines.forecasts import Knowledge
from aes_rl.engines.fusing import fused
from aes_rl.types import Counter, Transition

GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB
"""Splitmix64's increment and multipliers."""


class TorchEngine(AbstractEngine):
    """The twin that the compiled loops are tested against, and the engine of the GPU."""

    def __init__(self, device: torch.device, has_kernels: bool = False):
        """With kernels, what takes dozens of operations is one Triton kernel each: the engine `triton`."""
        self.device = device
        self.name = "triton" if has_kernels else "torch"

    @override
    def counter(self) -> Int[Tensor, ""]:
        return torch.zeros((), dtype=torch.int64, device=self.device)

    @override
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    @override
    def view(self, tensor: Tensor) -> Tensor:
        return tensor

    @override
    def uniform(self, keys: Int[Tensor, "P"], counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
        if self.name == "triton":
            from aes_rl.engines.triton_kernels import uniform_numbers

            return uniform_numbers(keys, counter, count)
        start = _mix(keys + counter * as_int64(GOLDEN))
        elements = torch.arange(1, count + 1, device=self.device)
        bits = _mix(start.unsqueeze(-1) + elements * as_int64(GOLDEN))
        return (_shift(bits, 12) * 2 + 1).double() * 2.0**-53

    @override
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[Float[Tensor, "P D"], Bool[Tensor, "P"]]:
        return _packed(*transition, dtype)

    @override
    def write_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P 1"], packed: Float[Tensor, "P D"]) -> None:
        if self.name == "triton":
            from aes_rl.engines import triton_kernels

            triton_kernels.write_rows(rows, slots, packed)
            return
        flat, index = _flatten(rows, slots)
        flat.index_copy_(0, index, packed)

    @override
    def read_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P B"]) -> Float[Tensor, "P B D"]:
        if self.name == "triton":
            from aes_rl.engines import triton_kernels

            return triton_kernels.read_rows(rows, slots)
        flat, index = _flatten(rows, slots)
        return flat.index_select(0, index).view(*slots.shape, -1)

    @override
    def within(self, values: Float[Tensor, "P B"], lowest: float) -> Bool[Tensor, "P B"]:
        return values.isfinite() & (values >= lowest)

    @override
    def unbiased_weights(
        self, probabilities: Float[Tensor, "p B"], size: Counter, dtype: torch.dtype
    ) -> Float[Tensor, "p B"]:
        return _unbiased_weights(probabilities, size, dtype)

    @override
    def accumulate(
        self,
        sums: Float[Tensor, "p N"],
        slots: Int[Tensor, "p B"],
        probabilities: Float[Tensor, "p B"],
        squared_norms: Float[Tensor, "p B"],
        nu: Float[Tensor, "p 1"],
    ) -> Float[Tensor, "p B"]:
        if self.name == "triton":
            from aes_rl.engines.triton_kernels import accumulate_

            return accumulate_(sums, slots, probabilities, squared_norms, nu)
        sums.scatter_add_(1, slots, squared_norms / probabilities)
        return (sums.gather(1, slots) + nu).sqrt()

    @override
    def clear(
        self, sums: Float[Tensor, "p N"], slots: Int[Tensor, "p K"], nu: Float[Tensor, "p 1"]
    ) -> Float[Tensor, "p K"]:
        sums.scatter_(1, slots, 0.0)
        return nu.sqrt().expand(slots.shape).contiguous()

    @override
    def observe(
        self,
        known: Knowledge,
        slots: Int[Tensor, "p B"],
        probabilities: Float[Tensor, "p B"],
        size: Counter,
        squared_norms: Float[Tensor, "p B"],
        keep: float,
        horizon: int,
    ) -> Float[Tensor, "p B"]:
        return forecasts.observe(known, slots, probabilities, size, squared_norms, keep, horizon)

    @override
    def forget(self, known: Knowledge, slots: Int[Tensor, "p K"]) -> Float[Tensor, "p K"]:
        known.seen.scatter_(1, slots, 0)
        return forecasts.prior_mass(known.moments).expand(slots.shape).contiguous()

    @override
    def forecast(self, known: Knowledge) -> Float[Tensor, "p N"]:
        return forecasts.forecast(*known)


@fused
def _packed(
    before: Float[Tensor, "P O"],
    action: Float[Tensor, "P A"],
    reward: Float[Tensor, "P"],
    after: Float[Tensor, "P O"],
    terminated: Float[Tensor, "P"],
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "P D"], Bool[Tensor, "P"]]:
    packed = torch.cat([before, action, after, reward.unsqueeze(-1), terminated.unsqueeze(-1)], dim=-1).to(dtype)
    return packed, packed.isfinite().all(dim=-1)


@fused
def _unbiased_weights(probabilities: Float[Tensor, "p B"], size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
    return torch.reciprocal(probabilities * size).to(dtype)


def as_int64(x: int) -> int:
    """The signed number with the same 64 bits."""
    return x - (1 << 64) if x >= 1 << 63 else x


def _mix(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    x = (x ^ _shift(x, 30)) * as_int64(FIRST)
    x = (x ^ _shift(x, 27)) * as_int64(SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Int[Tensor, "..."], places: int) -> Int[Tensor, "..."]:
    """Logical right shift: torch's keeps the sign."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _flatten(
    rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P K"]
) -> tuple[Float[Tensor, "PN D"], Int[Tensor, "PK"]]:
    members, capacity, width = rows.shape
    first = torch.arange(0, members * capacity, capacity, device=rows.device).unsqueeze(-1)
    return rows.view(members * capacity, width), (slots + first).view(-1)
