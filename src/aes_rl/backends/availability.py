"""Whether the kernels of our own can run on a tensor."""

from importlib.util import find_spec

import torch
from torch import Tensor

_HAS_TRITON = find_spec("triton") is not None


def has_kernels(tensor: Tensor) -> bool:
    """Whether Triton kernels may work on a tensor: on an NVIDIA GPU, and not while torch.compile reads the code."""
    return tensor.is_cuda and _HAS_TRITON and not torch.compiler.is_compiling()
