"""Settings of torch that apply only while a run computes."""

import numpy as np
import torch


class Numerics:
    """Context manager that changes these settings and restores the previous ones on exit. It cannot be nested.

    Denormal numbers (below 1e-38) are flushed to zero: weight decay produces them, and a CPU multiplies them eighty
    times more slowly than others. On a GPU, the run's device becomes the current one, on which torch creates streams
    and graphs, and matrix products get the configured precision.
    """

    def __init__(self, device: torch.device, tf32: bool):
        self._device = torch.cuda.device(device) if device.type == "cuda" else None
        self._precision = "high" if tf32 else "highest"

    def __enter__(self) -> None:
        self._flushed_before = _flushes_denormals()
        torch.set_flush_denormal(True)
        if self._device is not None:
            self._device.__enter__()  # type: ignore[no-untyped-call]
            self._precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self._precision)

    def __exit__(self, *_: object) -> None:
        torch.set_flush_denormal(self._flushed_before)
        if self._device is not None:
            torch.set_float32_matmul_precision(self._precision_before)
            self._device.__exit__(None, None, None)


def _flushes_denormals() -> bool:
    """Whether this thread flushes denormal numbers to zero; torch can set this but not read it."""
    return bool(np.float32(1e-40) * np.float32(1) == 0)
