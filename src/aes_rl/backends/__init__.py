"""Where the hot loops run: compiled for the CPU, as tensor operations that a CUDA graph can capture, as GPU kernels."""

from aes_rl.backends.availability import has_kernels
from aes_rl.backends.backend import AbstractBackend, Forms
from aes_rl.backends.choice import choose
from aes_rl.backends.fusing import fused
from aes_rl.backends.side_stream import SideStream

__all__ = ["AbstractBackend", "Forms", "SideStream", "choose", "fused", "has_kernels"]
