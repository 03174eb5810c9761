"""A second CUDA stream for small kernels, which do not fill a GPU on their own."""

from types import TracebackType

import torch


class SideStream:
    """Runs work whose results are not needed before `join`; on the CPU the work runs immediately.

    Work in `with side_stream:` waits for everything before it. A second block before `join` runs after the first. Keep
    references to the inputs until `join`, and read the results only after it: memory that is freed in between may be
    reused.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._is_joined = True
        self._inner: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self._stream is not None:
            if self._is_joined:
                self._stream.wait_stream(torch.cuda.current_stream())
            self._is_joined = False
            self._inner = torch.cuda.stream(self._stream)
            self._inner.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(kind, error, trace)

    def join(self) -> None:
        """Make the current stream wait for the work."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._is_joined = True
