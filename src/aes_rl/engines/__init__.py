"""How the hot loops run: compiled for the CPU, or as tensor operations that a CUDA graph can capture."""

from importlib.util import find_spec
from typing import get_args

import torch

from aes_rl.engines.aside import Aside
from aes_rl.engines.availability import has_kernels
from aes_rl.engines.engine import AbstractEngine
from aes_rl.engines.fusing import fused
from aes_rl.engines.torch_engine import TorchEngine
from aes_rl.errors import UserError
from aes_rl.types import EngineName

__all__ = ["AbstractEngine", "Aside", "TorchEngine", "choose", "fused", "has_kernels"]


def choose(name: EngineName | None, device: torch.device | str) -> AbstractEngine:
    """The engine of that name, by default `numba` on the CPU, `triton` on NVIDIA's GPUs, and `torch` elsewhere."""
    device = torch.device(device)
    if name not in (*get_args(EngineName), None):
        raise UserError(f"unknown engine {name!r}; the engines are {', '.join(get_args(EngineName))}")
    if name == "numba" and device.type != "cpu":
        raise UserError(f"engine 'numba' runs on the CPU, not on {device}; use engine 'torch' there")
    if name == "triton" and find_spec("triton") is None:
        raise UserError("engine 'triton' needs the package triton; install it, or use engine 'torch'")
    if name == "triton" or (name is None and device.type == "cuda" and find_spec("triton")):
        return TorchEngine(device, has_kernels=True)
    if name == "torch" or device.type != "cpu":
        return TorchEngine(device)
    from aes_rl.engines.numba_engine import NumbaEngine  # Numba stays off the GPU path

    return NumbaEngine()
