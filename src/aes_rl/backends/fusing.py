"""Fusion of small tensor operations into one or two kernels on NVIDIA GPUs, with torch.compile."""

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
"""Maximum number of compiled versions per function: a study trains many populations with different shapes."""


def fused(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a pure function of tensors on NVIDIA GPUs. On the CPU it is called unchanged, as the reference."""

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

        # One compile thread: a pool of worker processes would compete with the environments for cores.
        # Deterministic: autotuning would choose the order of sums by timing, and runs would not be reproducible.
        with (
            generation.patch(compile_threads=1, deterministic=True),
            tracing.patch(recompile_limit=_MOST_SHAPES, accumulated_recompile_limit=_MOST_SHAPES),
        ):
            return compiled(*arguments, **options)

    return call
