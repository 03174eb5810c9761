"""Process-wide torch settings of a run, in force only while it works."""

import numpy as np
import torch


class Numerics:
    """A context manager; on exit the process gets its previous settings back.

    Inside, denormal numbers (below 1e-38) are flushed to zero: weight decay produces them, and a CPU multiplies them
    eighty times more slowly. On a GPU, the run's device is the current one, because streams and graphs are created on
    that, and matrix products have the configured precision.
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
    """Whether this thread flushes denormal numbers to zero; torch has no function that tells."""
    return bool(np.float32(1e-40) * np.float32(1) == 0)
