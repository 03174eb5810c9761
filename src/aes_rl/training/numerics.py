"""Process-wide settings of torch that a run wants, in force only while it works."""

import numpy as np
import torch


class Numerics:
    """Enter it for a piece of work; afterwards the process has the settings that it had before.

    Numbers below 1e-38 count as zero: weight decay makes them, and a CPU multiplies them eighty times more slowly. On a
    GPU the run's own device is the current one, since streams and graphs belong to that, and matrix products have the
    precision it asks for.
    """

    def __init__(self, device: torch.device, tf32: bool):
        self._device = torch.cuda.device(device) if device.type == "cuda" else None
        self._precision = "high" if tf32 else "highest"

    def __enter__(self) -> None:
        self._flushed = _flushes_denormals()
        torch.set_flush_denormal(True)
        if self._device is not None:
            self._device.__enter__()  # type: ignore[no-untyped-call]
            self._precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self._precision)

    def __exit__(self, *_: object) -> None:
        torch.set_flush_denormal(self._flushed)
        if self._device is not None:
            torch.set_float32_matmul_precision(self._precision_before)
            self._device.__exit__(None, None, None)


def _flushes_denormals() -> bool:
    """Whether this thread's arithmetic takes numbers below 1e-38 for zero; torch does not tell."""
    return bool(np.float32(1e-40) * np.float32(1) == 0)
