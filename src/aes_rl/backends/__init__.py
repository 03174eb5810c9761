"""Backends of the hot loops: compiled CPU loops, tensor operations that CUDA graphs can capture, and GPU kernels."""

from aes_rl.backends.availability import has_kernels
from aes_rl.backends.backend import AbstractBackend, Forms
from aes_rl.backends.choice import choose
from aes_rl.backends.fusing import fused
from aes_rl.backends.side_stream import SameStream, SideStream, side_stream_of

__all__ = ["AbstractBackend", "Forms", "SameStream", "SideStream", "choose", "fused", "has_kernels", "side_stream_of"]
