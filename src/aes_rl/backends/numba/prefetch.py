"""Requests for memory before it is needed, so that the random reads of a batch overlap."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

from collections.abc import Callable
from typing import cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

_BYTE, _INT = ir.IntType(8).as_pointer(), ir.IntType(32)
_READ, _KEEP, _DATA = (ir.Constant(_INT, value) for value in (0, 3, 1))


def _prefetch(_, array, index):
    """Request the cache line of `array[index]`, of a contiguous array with one axis. Has no effect on any value."""
    if not isinstance(array, types.Array) or array.ndim != 1 or not isinstance(index, types.Integer):
        return None

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, _READ, _KEEP, _DATA])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch = cast(Callable[[NDArray[np.generic], np.uint64], None], intrinsic(_prefetch))
