"""Plain tensor operations for any device. They never synchronize with the host, so CUDA graphs can capture them."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.backend import AbstractBackend, Forms, Result
from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.backends.fusing import fused
from aes_rl.backends.torch.distribution import TorchDistribution
from aes_rl.backends.torch.tree import BlockTree
from aes_rl.streams import FIRST, GOLDEN, SECOND, as_int64
from aes_rl.types import Counter, Draw, Transition, as_tensor


class AbstractTensorBackend(AbstractBackend[Tensor]):
    """What the backends `torch` and `triton` share."""

    def __init__(self, device: torch.device):
        self.device = device

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
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[Float[Tensor, "P D"], Bool[Tensor, "P"]]:
        before, action, reward, after, terminated = map(as_tensor, transition)
        packed, finite = _packed(before, action, reward, after, terminated, dtype)
        if packed.requires_grad:
            raise RuntimeError("a field requires grad")
        return packed, finite

    @override
    def inverse_probabilities(
        self, probabilities: Float[Tensor, "p B"], size: Counter, dtype: torch.dtype
    ) -> Float[Tensor, "p B"]:
        return _inverse_probabilities(probabilities, size, dtype)

    @override
    def screen(
        self,
        draw: Draw,
        values: Sequence[tuple[Float[Tensor, "P B"], float]],
        distribution: AbstractDistribution[Tensor],
        fault: Bool[Tensor, "P"],
    ) -> tuple[None, Bool[Tensor, "P B"]]:
        numbers, lowest = [value for value, _ in values], [limit for _, limit in values]
        counts, faulty = _screened(distribution.stamps, draw.slots, draw.clock, fault, numbers, lowest)
        fault.copy_(faulty)
        return None, counts

    @override
    def total(self, values: Sequence[Float[Tensor, "p B"]]) -> Float[Tensor, "p B"]:
        return _total(*values)

    @override
    def sound(self, values: Float[Tensor, "P n"], lowest: float) -> Bool[Tensor, "P n"]:
        return values.isfinite() & (values >= lowest)


class TorchBackend(AbstractTensorBackend):
    """The backend for any device, and the reference that the others are tested against."""

    name = "torch"

    @override
    def form(self, forms: Forms[Result]) -> Callable[..., Result]:
        return forms.tensors

    @override
    def uniform(self, keys: Int[Tensor, "P"], counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
        start = _mix(keys + counter * as_int64(GOLDEN))
        elements = torch.arange(1, count + 1, device=self.device)
        bits = _mix(start.unsqueeze(-1) + elements * as_int64(GOLDEN))
        return (_shift(bits, 12) * 2 + 1).double() * 2.0**-53

    @override
    def write_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P 1"], packed: Float[Tensor, "P D"]) -> None:
        flat, index = _flatten(rows, slots)
        flat.index_copy_(0, index, packed)

    @override
    def read_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P B"]) -> Float[Tensor, "P B D"]:
        flat, index = _flatten(rows, slots)
        return flat.index_select(0, index).view(*slots.shape, -1)

    @override
    def distribution(
        self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int
    ) -> TorchDistribution:
        return TorchDistribution(floors, overwrites, BlockTree(len(floors), capacity, self.device), self.device)


@fused
def _screened(
    stamps: Int[Tensor, "P N"],
    slots: Int[Tensor, "P B"],
    clock: Counter,
    fault: Bool[Tensor, "P"],
    values: list[Float[Tensor, "P B"]],
    lowest: list[float],
) -> tuple[Bool[Tensor, "P B"], Bool[Tensor, "P"]]:
    sound = torch.ones_like(slots, dtype=torch.bool)
    for value, limit in zip(values, lowest, strict=True):
        sound = sound & value.isfinite() & (value >= limit)
    return sound & (stamps.gather(1, slots) <= clock), fault | ~sound.all(dim=1)


@fused
def _total(first: Float[Tensor, "p B"], *others: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
    total = first.double()
    for other in others:
        total = total + other
    return total


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
def _inverse_probabilities(
    probabilities: Float[Tensor, "p B"], size: Counter, dtype: torch.dtype
) -> Float[Tensor, "p B"]:
    return torch.reciprocal(probabilities * size).to(dtype)


def _mix(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    x = (x ^ _shift(x, 30)) * as_int64(FIRST)
    x = (x ^ _shift(x, 27)) * as_int64(SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Int[Tensor, "..."], places: int) -> Int[Tensor, "..."]:
    """Logical right shift; that of torch is arithmetic."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _flatten(
    rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P K"]
) -> tuple[Float[Tensor, "PN D"], Int[Tensor, "PK"]]:
    members, capacity, width = rows.shape
    first = torch.arange(0, members * capacity, capacity, device=rows.device).unsqueeze(-1)
    return rows.view(members * capacity, width), (slots + first).view(-1)
