"""Selection of the backend for a device."""

from importlib.util import find_spec
from typing import cast, get_args

import torch

from aes_rl.backends.backend import AbstractBackend
from aes_rl.errors import UserError
from aes_rl.types import Array, BackendName


def choose(name: BackendName | None, device: torch.device | str) -> AbstractBackend[Array]:
    """The backend with a name; by default `numba` on the CPU, `triton` on NVIDIA GPUs, and `torch` elsewhere."""
    device = torch.device(device)
    if name not in (*get_args(BackendName), None):
        raise UserError(f"unknown backend {name!r}; the backends are {', '.join(get_args(BackendName))}")
    if name == "numba" and device.type != "cpu":
        raise UserError(f"backend 'numba' runs on the CPU, not on {device}; use backend 'torch'")
    if name == "triton" and find_spec("triton") is None:
        raise UserError("backend 'triton' needs the package triton; install it, or use backend 'torch'")
    # Imported only when used: a GPU run does not need Numba, a CPU run does not need Triton.
    if name == "triton" or (name is None and device.type == "cuda" and find_spec("triton")):
        from aes_rl.backends.triton.backend import TritonBackend

        return cast("AbstractBackend[Array]", TritonBackend(device))
    if name == "torch" or device.type != "cpu":
        from aes_rl.backends.torch.backend import TorchBackend

        return cast("AbstractBackend[Array]", TorchBackend(device))
    from aes_rl.backends.numba.backend import NumbaBackend

    return cast("AbstractBackend[Array]", NumbaBackend())
