"""A second CUDA stream for small kernels: alone they do not fill a GPU, so they run beside other work."""

from contextlib import nullcontext
from types import TracebackType

import torch


class SideStream:
    """Runs work whose results are not needed before `join`.

    The first `with side_stream:` block after a `join` waits for all earlier work of the current stream. Further blocks
    run after the first one, but do not wait for later work of the current stream. Keep references to the inputs until
    `join`: their memory may be reused as soon as it is freed. Read the results only after `join`.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._is_joined = True
        self._context: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self._is_joined:
            self._stream.wait_stream(torch.cuda.current_stream())
        self._is_joined = False
        self._context = torch.cuda.stream(self._stream)
        self._context.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._context is not None
        self._context.__exit__(kind, error, trace)

    def join(self) -> None:
        """Make the current stream wait for the work of all blocks."""
        torch.cuda.current_stream().wait_stream(self._stream)
        self._is_joined = True


class SameStream(nullcontext[None]):
    """Takes the place of a side stream on the CPU: the work runs immediately."""

    def join(self) -> None:
        """Nothing is left to wait for."""


def side_stream_of(device: torch.device) -> SideStream | SameStream:
    """A side stream on a GPU, the same stream elsewhere."""
    return SideStream(device) if device.type == "cuda" else SameStream()
