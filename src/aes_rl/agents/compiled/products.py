"""Batched matrix products, computed by torch or by NumPy, depending on the processor."""

from collections.abc import Callable
from functools import cache, partial

import llvmlite.binding
import numpy as np
import torch
from threadpoolctl import LibController, ThreadpoolController
from torch import Tensor

_ZEN = "znver"
"""Prefix of LLVM's names for AMD's Zen processors."""


def product(one: Tensor, other: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that writes the matrix products `one @ other` to `out`, in the tensors' present memory.

    Call it within `OneBlasThread`.
    """
    if is_by_numpy():
        return partial(np.matmul, one.numpy(), other.numpy(), out.numpy())
    return partial(torch.bmm, one, other, out=out)


def is_by_numpy() -> bool:
    """Whether NumPy computes the products: on AMD's Zen processors, for which its BLAS has kernels, unlike torch's MKL.

    With several threads torch computes them, because the threads of two libraries would compete for the same cores. The
    choice does not depend on a measurement of speed, so runs on one machine are reproducible.
    """
    return torch.get_num_threads() == 1 and _is_zen() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


@cache
def _is_zen() -> bool:
    name: str = llvmlite.binding.get_host_cpu_name()
    return name.startswith(_ZEN)


class OneBlasThread:
    """Context manager in which NumPy's BLAS, if it computes products, uses one thread, like torch.

    By default it uses all cores, and outside of updates an application keeps its own setting.
    """

    def __init__(self) -> None:
        self._libraries = _blas_libraries() if is_by_numpy() else ()
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before = [library.get_num_threads() for library in self._libraries]
        for library in self._libraries:
            library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        for library, threads in zip(self._libraries, self._before, strict=True):
            library.set_num_threads(threads)


@cache
def _blas_libraries() -> tuple[LibController, ...]:
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
