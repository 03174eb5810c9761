"""Whether Triton kernels can run on a tensor."""

from importlib.util import find_spec

import torch
from torch import Tensor

_HAS_TRITON = find_spec("triton") is not None


def has_kernels(tensor: Tensor) -> bool:
    """Whether Triton kernels can run on a tensor: it is on an NVIDIA GPU, and torch.compile is not tracing."""
    return tensor.is_cuda and _HAS_TRITON and not torch.compiler.is_compiling()
