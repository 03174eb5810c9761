"""The CPU backend: compiled loops. A NumPy view costs one microsecond, a tensor operation several."""

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.backend import AbstractBackend, Forms, Result
from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.backends.numba import loops
from aes_rl.backends.numba.distribution import NumbaDistribution
from aes_rl.backends.numba.tree import NUMPY_TYPES, Numbers, all_true, as_array, zeros
from aes_rl.types import Counter, Draw, Transition, as_tensor


class NumbaBackend(AbstractBackend[Numbers]):
    """The CPU backend, with loops compiled by Numba."""

    name = "numba"
    device = torch.device("cpu")

    @override
    def counter(self) -> int:
        return 0

    @override
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return zeros(shape, dtype)

    @override
    def view(self, tensor: Tensor) -> Numbers:
        return tensor.numpy()

    @override
    def form(self, forms: Forms[Result]) -> Callable[..., Result]:
        if not forms.loops:
            return _on_tensors(forms.tensors)
        module, _, function = forms.loops.partition(":")
        compiled: Callable[..., Result] = getattr(import_module(module), function)
        return compiled

    @override
    def uniform(self, keys: Numbers, counter: Counter, count: int) -> Numbers:
        numbers = np.empty((len(keys), count))
        loops.uniform(keys, counter, numbers)
        return numbers

    @override
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[Numbers, bool]:
        before, action, reward, after, terminated = map(as_array, transition)
        packed = np.empty((len(before), 2 * before.shape[1] + action.shape[1] + 2), NUMPY_TYPES[dtype])
        return packed, loops.pack(before, action, after, reward, terminated, packed)

    @override
    def write_rows(self, rows: Numbers, slots: Numbers, packed: Numbers) -> None:
        loops.write_rows(rows, slots, packed)

    @override
    def read_rows(self, rows: Numbers, slots: Numbers) -> Float[Tensor, "P B D"]:
        copied = np.empty((*slots.shape, rows.shape[2]), rows.dtype)
        loops.read_rows(rows, slots, copied)
        return torch.from_numpy(copied)

    @override
    def inverse_probabilities(self, probabilities: Numbers, size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
        weights = np.empty(probabilities.shape, NUMPY_TYPES[dtype])
        loops.inverse_probabilities(probabilities, size, weights)
        return torch.from_numpy(weights)

    @override
    def distribution(
        self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int
    ) -> NumbaDistribution:
        return NumbaDistribution(floors, overwrites, capacity)

    @override
    def screen(
        self,
        draw: Draw,
        values: Sequence[tuple[Numbers, float]],
        distribution: AbstractDistribution[Numbers],
        fault: Bool[Tensor, "P"],
    ) -> tuple[int | None, Numbers]:
        current = distribution.is_current(draw)
        counts = all_true(*draw.slots_view.shape) if current is None else current.numpy()
        for number, (value, lowest) in enumerate(values):
            if not loops.within(value, lowest):
                return number, counts
        return None, counts

    @override
    def total(self, values: Sequence[Numbers]) -> Numbers:
        first, second, *others = values
        total: Numbers = np.add(first, second, dtype=np.float64)
        for other in others:
            total = np.add(total, other)
        return total

    @override
    def sound(self, values: Float[Tensor, "P n"], lowest: float) -> bool:
        return bool(loops.within(values.numpy(), lowest))


def _on_tensors(function: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap a function of tensors so that it accepts arrays."""

    @wraps(function)
    def call(*arguments: object) -> Result:
        return function(*(as_tensor(one) if isinstance(one, np.ndarray) else one for one in arguments))

    return call
