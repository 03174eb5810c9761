"""Work beside other work: a second stream of a GPU, which small kernels leave half idle."""

from types import TracebackType

import torch


class Aside:
    """A place for work that what follows does not need before `join`; on the CPU it is done at once.

    `with aside:` starts after all that came before, and a second one before `join` goes on where the first ended. Keep
    what the work reads until `join`, and read what it made only after that: memory that is let go in between may be
    given to somebody else.
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
        """Let what follows wait for the work."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._is_joined = True
