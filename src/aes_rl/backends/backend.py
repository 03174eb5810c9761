"""What a backend implements: rows, sum tree and placement, random numbers, screening. Nothing of any rule."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.backends.distribution import AbstractDistribution, Overwrite
from aes_rl.types import AnyArray, BackendName, Counter, Draw, Transition


@dataclass(frozen=True)
class Forms:
    """One function of a rule in the forms that backends can run. All forms agree.

    Forms that need Numba or Triton are named as `module:function` and imported only where they run.
    """

    tensors: Callable[..., Tensor]
    """Tensor operations, which a CUDA graph can capture: the specification of the others."""
    loops: str = ""
    """A compiled CPU loop, which takes NumPy arrays."""
    kernels: str = ""
    """GPU kernels."""


class AbstractBackend(ABC, Generic[AnyArray]):
    """Functions of arrays without state. All backends agree: integers exactly, floats to rounding."""

    name: BackendName
    device: torch.device

    @abstractmethod
    def counter(self) -> Counter:
        """A clock at zero: a plain number, or a tensor where captured code has to move it."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros for large data that is read at random."""

    @abstractmethod
    def view(self, tensor: Tensor) -> AnyArray:
        """The same memory in the form that this backend's loops take."""

    @abstractmethod
    def form(self, forms: Forms) -> Callable[..., Tensor]:
        """The form of a rule's function that this backend runs."""

    @abstractmethod
    def uniform(self, keys: AnyArray, counter: Counter, count: int) -> AnyArray:
        """Splitmix64 started at a hash of (key, counter), as (2k+1)·2⁻⁵³ for the upper 52 bits k: never 0 or 1."""

    @abstractmethod
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[AnyArray, bool | Bool[Tensor, "P"]]:
        """One row per member: observation, action, next observation, reward, terminated; and whether they are finite.

        The answer is one for all members on the host, and one per member on a device.
        """

    @abstractmethod
    def write_rows(self, rows: AnyArray, slots: AnyArray, packed: AnyArray) -> None:
        """Put one packed row of every member into its slot."""

    @abstractmethod
    def read_rows(self, rows: AnyArray, slots: AnyArray) -> Float[Tensor, "P B D"]:
        """The rows in some slots, copied out."""

    @abstractmethod
    def inverse_probabilities(self, probabilities: AnyArray, size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
        """1 / (n · p(i))."""

    @abstractmethod
    def distribution(
        self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int
    ) -> AbstractDistribution[AnyArray]:
        """Sum tree, floor and placement of some members."""

    @abstractmethod
    def screen(
        self,
        draw: Draw,
        values: Sequence[tuple[Float[Tensor, "P B"], float]],
        distribution: AbstractDistribution[AnyArray],
        fault: Bool[Tensor, "P"],
    ) -> tuple[int | None, AnyArray, bool]:
        """Look at the values of a report, each with the lowest that it may have.

        Where the host can see them: the number of the first that is not finite and at least that, if there is one.
        Elsewhere such values count for nothing, and `fault` says which members sent one. Then: which draws count, and
        whether it is known that all of them do.
        """

    @abstractmethod
    def sound(self, values: Float[Tensor, "P n"], lowest: float) -> bool | Bool[Tensor, "P n"]:
        """Whether values are finite and at least `lowest`: all of them on the host, each of them on a device."""
