"""Products of stacked matrices, by the library whose kernels suit this processor."""

from collections.abc import Callable
from functools import cache, partial

import llvmlite.binding
import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

_ZEN = "znver"
"""How LLVM's names of AMD's processors begin."""


def product(one: Tensor, other: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that writes the products of two stacks of matrices to `out`; all three keep their memory."""
    if is_by_numpy():
        _follow_threads()
        return partial(np.matmul, one.numpy(), other.numpy(), out.numpy())
    return partial(torch.bmm, one, other, out=out)


@cache
def is_by_numpy() -> bool:
    """Whether NumPy multiplies matrices: torch's MKL has no kernels of its own for AMD's processors, NumPy's BLAS has.

    It does not depend on anything measured, so that runs on one machine stay reproducible.
    """
    processor: str = llvmlite.binding.get_host_cpu_name()
    return torch.backends.mkl.is_available() and processor.startswith(_ZEN)  # type: ignore[no-untyped-call]


def _follow_threads() -> None:
    """Let NumPy's BLAS use as many threads as torch: by default it takes all cores."""
    controller, threads = _controller(), torch.get_num_threads()
    if any(library["num_threads"] != threads for library in controller.select(user_api="blas").info()):
        controller.limit(limits=threads, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
