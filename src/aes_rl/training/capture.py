"""Stages of the training loop as CUDA graphs: hundreds of kernels with one launch."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")
_EAGER_CALLS = 3
"""Calls before the capture, in which libraries initialise themselves."""


def captured(function: Callable[[], Result], device: torch.device) -> Callable[[], Result]:
    """The function itself on the CPU, and captured on a GPU."""
    return _Captured(function) if device.type == "cuda" else function


class _Captured(Generic[Result]):
    """A function that reads and changes tensors in place, captured once and then replayed.

    After the capture it returns the same tensors every time, with new contents. Python code other than tensor
    operations runs in the first calls only. Load saved state before the first call.
    """

    def __init__(self, function: Callable[[], Result]):
        self._function = function
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result

    def __call__(self) -> Result:
        """Run the function once."""
        if self._graph is None and self._calls < _EAGER_CALLS:
            self._calls += 1
            return self._call_on_another_stream()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # On a stream of its own: graphs captured on one stream share cuBLAS's workspace, and some replay together.
            with torch.cuda.graph(self._graph, stream=torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                self._result = self._function()
        self._graph.replay()
        return self._result

    def _call_on_another_stream(self) -> Result:
        """CUDA graphs require this of the calls before the capture."""
        other, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        other.wait_stream(current)
        with torch.cuda.stream(other):
            result = self._function()
        current.wait_stream(other)
        return result
