"""Products of stacked matrices, by the library whose kernels suit this processor."""

from collections.abc import Callable
from functools import cache, partial

import llvmlite.binding
import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

_ZEN = "znver"
"""How the names of AMD's processors begin in LLVM."""


def product(one: Tensor, other: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that writes the products of two stacks of matrices to `out`; all three keep their memory."""
    if is_by_numpy():
        _use_one_thread()
        return partial(np.matmul, one.numpy(), other.numpy(), out.numpy())
    return partial(torch.bmm, one, other, out=out)


def is_by_numpy() -> bool:
    """Whether NumPy multiplies matrices: torch's MKL has no kernels of its own for AMD's processors, NumPy's BLAS has.

    With several threads torch does: two libraries' threads would wait for each other's work on the same cores. Nothing
    is measured to decide, so that runs on one machine stay reproducible.
    """
    return torch.get_num_threads() == 1 and _is_zen() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


@cache
def _is_zen() -> bool:
    name: str = llvmlite.binding.get_host_cpu_name()
    return name.startswith(_ZEN)


@cache
def _use_one_thread() -> None:
    """Let NumPy's BLAS use one thread in this process, as torch does: by default it takes all cores."""
    ThreadpoolController().limit(limits=1, user_api="blas")
