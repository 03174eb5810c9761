"""A second CUDA stream for small kernels, which do not fill a GPU on their own."""

from contextlib import nullcontext
from types import TracebackType

import torch


class SideStream:
    """Runs work whose results are not needed before `join`.

    Work in `with side_stream:` waits for everything before it. A second block before `join` runs after the first. Keep
    references to the inputs until `join`, and read the results only after it: memory that is freed in between may be
    reused.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._is_joined = True
        self._inner: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self._is_joined:
            self._stream.wait_stream(torch.cuda.current_stream())
        self._is_joined = False
        self._inner = torch.cuda.stream(self._stream)
        self._inner.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._inner is not None
        self._inner.__exit__(kind, error, trace)

    def join(self) -> None:
        """Make the current stream wait for the work."""
        torch.cuda.current_stream().wait_stream(self._stream)
        self._is_joined = True


class SameStream(nullcontext[None]):
    """Takes the place of a side stream on the CPU: the work runs immediately."""

    def join(self) -> None:
        """Nothing is left to wait for."""


def side_stream_of(device: torch.device) -> SideStream | SameStream:
    """A side stream on a GPU, the same stream elsewhere."""
    return SideStream(device) if device.type == "cuda" else SameStream()
