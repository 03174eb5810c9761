"""Sequences of small tensor operations as one or two kernels, by torch.compile, on NVIDIA GPUs."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from aes_rl.backends.availability import has_kernels

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_BACKEND = "inductor"
_MOST_SHAPES = 1000
"""Compiled forms of one function in a process: a study trains many populations, each with shapes of its own."""


def fused(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function of tensors that changes none of them. On the CPU it is called as it is: its own twin."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        first = next(argument for argument in arguments if isinstance(argument, Tensor))
        return (_compiled(function) if has_kernels(first) else function)(*arguments, **options)

    return call


@cache
def _compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    compiled = torch.compile(function, dynamic=False, fullgraph=True, backend=_BACKEND)

    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        from torch._dynamo import config as tracing
        from torch._inductor import config as generation

        # One process compiles: a pool of them would take the cores from the environments for seconds after the start.
        # Deterministic: else sums are ordered in the way that was fastest when timed, and a run may not be had again.
        with (
            generation.patch(compile_threads=1, deterministic=True),
            tracing.patch(recompile_limit=_MOST_SHAPES, accumulated_recompile_limit=_MOST_SHAPES),
        ):
            return compiled(*arguments, **options)

    return call
