"""The interface of a backend: rows, sum tree and placement, random numbers, validation. Independent of any rule."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.types import AnyArray, BackendName, Counter, Draw, Transition

Result = TypeVar("Result")
"""What the forms of a function return: a tensor, or the agent that a constructor makes."""


@dataclass(frozen=True)
class Forms(Generic[Result]):
    """The implementations of one function of a rule for the different backends. All give the same results.

    Implementations that need Numba or Triton are given as `module:function` and imported only when they are used.
    """

    tensors: Callable[..., Result]
    """Tensor operations, which a CUDA graph can capture: the reference implementation."""
    loops: str = ""
    """Compiled CPU loop, which takes NumPy arrays."""
    kernels: str = ""
    """GPU kernels."""


class AbstractBackend(ABC, Generic[AnyArray]):
    """Stateless functions of arrays. All backends agree: integers exactly, floats up to rounding."""

    name: BackendName
    device: torch.device

    @abstractmethod
    def counter(self) -> Counter:
        """A counter at zero: an int, or a tensor where captured CUDA graphs must increment it."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros, for large arrays with random access."""

    @abstractmethod
    def view(self, tensor: Tensor) -> AnyArray:
        """The same memory in the array type of this backend."""

    @abstractmethod
    def form(self, forms: Forms[Result]) -> Callable[..., Result]:
        """The implementation of a rule's function for this backend."""

    @abstractmethod
    def uniform(self, keys: AnyArray, counter: Counter, count: int) -> AnyArray:
        """Splitmix64 started at a hash of (key, counter), as (2k+1)·2⁻⁵³ for the upper 52 bits k: never 0 or 1."""

    @abstractmethod
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[AnyArray, bool | Bool[Tensor, "P"]]:
        """One row per member: observation, action, next observation, reward, terminated; and whether they are finite.

        On the CPU that is one bool for all members, on a GPU one per member. A field that requires grad is rejected.
        """

    @abstractmethod
    def write_rows(self, rows: AnyArray, slots: AnyArray, packed: AnyArray) -> None:
        """Write one packed row per member into its slot."""

    @abstractmethod
    def read_rows(self, rows: AnyArray, slots: AnyArray) -> Float[Tensor, "P B D"]:
        """A copy of the rows in the given slots."""

    @abstractmethod
    def inverse_probabilities(self, probabilities: AnyArray, size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
        """1 / (n · p(i))."""

    @abstractmethod
    def distribution(
        self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int
    ) -> AbstractDistribution[AnyArray]:
        """The distribution over the slots of the members."""

    @abstractmethod
    def screen(
        self,
        draw: Draw,
        values: Sequence[tuple[AnyArray, float]],
        distribution: AbstractDistribution[AnyArray],
        fault: Bool[Tensor, "P"],
    ) -> tuple[int | None, AnyArray]:
        """Validate the signals of a report, each of which comes with its lowest valid value.

        Returns the index of the first signal with a value that is not finite or too low, or None; and which draws
        count. On a GPU the index is always None: invalid values do not count, and `fault` is set for their members.
        """

    @abstractmethod
    def total(self, values: Sequence[AnyArray]) -> AnyArray:
        """The sum of two or more arrays in float64: that of large float32 numbers may overflow float32."""

    @abstractmethod
    def sound(self, values: Float[Tensor, "P n"], lowest: float) -> bool | Bool[Tensor, "P n"]:
        """Whether values are finite and at least `lowest`: one bool on the CPU, one per value on a GPU."""
