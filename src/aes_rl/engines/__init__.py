"""How the hot loops run: compiled for the CPU, or as tensor operations that a CUDA graph can capture."""

import torch

from aes_rl.engines.engine import AbstractEngine
from aes_rl.engines.torch_engine import TorchEngine
from aes_rl.types import EngineName

__all__ = ["AbstractEngine", "TorchEngine", "choose"]


def choose(name: EngineName | None, device: torch.device | str) -> AbstractEngine:
    """The engine of that name, by default `numba` on the CPU and `torch` elsewhere."""
    device = torch.device(device)
    if name not in ("numba", "torch", None):
        raise ValueError(f"unknown engine {name!r}; the engines are numba and torch")
    if name == "numba" and device.type != "cpu":
        raise ValueError(f"engine 'numba' runs on the CPU, not on {device}; use engine 'torch' there")
    if name == "torch" or device.type != "cpu":
        return TorchEngine(device)
    from aes_rl.engines.numba_engine import NumbaEngine  # Numba stays off the GPU path

    return NumbaEngine()
