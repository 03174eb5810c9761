"""The loops compiled for the CPU. Sharing memory with NumPy costs a microsecond; a tensor operation costs several."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.engines import forecast_kernels, kernels
from aes_rl.engines.engine import AbstractEngine
from aes_rl.engines.forecasts import Knowledge
from aes_rl.types import Counter, Transition

Array = np.ndarray[Any, Any]
_NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64, torch.int32: np.int32}


class NumbaEngine(AbstractEngine):
    """The engine of the CPU."""

    name = "numba"
    device = torch.device("cpu")

    @override
    def counter(self) -> int:
        return 0

    @override
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        # NumPy asks the system for huge pages and torch does not: with ordinary ones the address lookups of 256 random
        # reads evict those of the program itself, and everything around them slows down.
        return torch.from_numpy(np.zeros(shape, _NUMPY_TYPES[dtype]))

    @override
    def view(self, tensor: Tensor) -> Array:
        return tensor.numpy()

    @override
    def uniform(self, keys: Array, counter: Counter, count: int) -> Array:
        numbers = np.empty((len(keys), count))
        kernels.uniform(keys, counter, numbers)
        return numbers

    @override
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[Array, bool]:
        before, action, reward, after, terminated = (field.numpy() for field in transition)
        packed = np.empty((len(before), 2 * before.shape[1] + action.shape[1] + 2), _NUMPY_TYPES[dtype])
        return packed, kernels.pack(before, action, after, reward, terminated, packed)

    @override
    def write_rows(self, rows: Array, slots: Array, packed: Array) -> None:
        kernels.write_rows(rows, slots, packed)

    @override
    def read_rows(self, rows: Array, slots: Array) -> Float[Tensor, "P B D"]:
        copied = np.empty((*slots.shape, rows.shape[2]), rows.dtype)
        kernels.read_rows(rows, slots, copied)
        return torch.from_numpy(copied)

    @override
    def within(self, values: Float[Tensor, "P B"], lowest: float) -> bool:
        return bool(kernels.within(values.numpy(), lowest))

    @override
    def unbiased_weights(self, probabilities: Array, size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
        weights = np.empty(probabilities.shape, _NUMPY_TYPES[dtype])
        kernels.unbiased_weights(probabilities, size, weights)
        return torch.from_numpy(weights)

    @override
    def accumulate(
        self,
        sums: Array,
        slots: Array,
        probabilities: Array,
        squared_norms: Float[Tensor, "p B"],
        nu: Array,
    ) -> Float[Tensor, "p B"]:
        masses = np.empty(slots.shape)
        kernels.accumulate(sums, slots, probabilities, squared_norms.numpy(), nu, masses)
        return torch.from_numpy(masses)

    @override
    def clear(self, sums: Array, slots: Int[Tensor, "p K"], nu: Array) -> Float[Tensor, "p K"]:
        masses = np.empty(slots.shape)
        kernels.clear(sums, slots.numpy(), nu, masses)
        return torch.from_numpy(masses)

    @override
    def observe(
        self,
        known: Knowledge,
        slots: Array,
        probabilities: Array,
        size: Counter,
        squared_norms: Float[Tensor, "p B"],
        keep: float,
        horizon: int,
    ) -> Float[Tensor, "p B"]:
        masses = np.empty(slots.shape)
        forecast_kernels.observe(*known, slots, probabilities, size, squared_norms.numpy(), keep, horizon, masses)
        return torch.from_numpy(masses)

    @override
    def forget(self, known: Knowledge, slots: Array) -> Float[Tensor, "p K"]:
        masses = np.empty(slots.shape)
        forecast_kernels.forget(known.seen, known.moments, slots, masses)
        return torch.from_numpy(masses)

    @override
    def forecast(self, known: Knowledge) -> Float[Tensor, "p N"]:
        masses = np.empty(known.logs.shape)
        forecast_kernels.forecast(*known, masses)
        return torch.from_numpy(masses)
