"""Stages of the loop as CUDA graphs: hundreds of kernels launched as one."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")
_EAGER_CALLS = 3
"""Calls before the recording, in which libraries set themselves up."""


class Captured(Generic[Result]):
    """A function that reads and changes tensors in place. On a GPU it is recorded once and then replayed.

    What it returns is then the same tensors every time, with new contents. What it does in Python, but for the
    operations on tensors, happens in the first calls only. Load saved state before the first call.
    """

    def __init__(self, function: Callable[[], Result], device: torch.device):
        self._function = function
        self._is_eager = device.type != "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result

    def __call__(self) -> Result:
        """Do it once."""
        if self._is_eager:
            return self._function()
        if self._graph is None and self._calls < _EAGER_CALLS:
            self._calls += 1
            return self._call_aside()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._result = self._function()
        self._graph.replay()
        return self._result

    def _call_aside(self) -> Result:
        """On another stream, as recording demands of the calls before it."""
        aside, main = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(main)
        with torch.cuda.stream(aside):
            result = self._function()
        main.wait_stream(aside)
        return result
