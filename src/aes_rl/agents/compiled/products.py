"""Batched matrix products, computed by torch or by NumPy, depending on the processor."""

from collections.abc import Callable
from functools import cache, partial

import llvmlite.binding
import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

_ZEN = "znver"
"""Prefix of LLVM's names for AMD's Zen processors."""


def product(one: Tensor, other: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that writes the matrix products `one @ other` to `out`, in the tensors' present memory."""
    if is_by_numpy():
        _use_one_thread()
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


@cache
def _use_one_thread() -> None:
    """Limit NumPy's BLAS to one thread, like torch, for the rest of this process; by default it uses all cores."""
    ThreadpoolController().limit(limits=1, user_api="blas")
