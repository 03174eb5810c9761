"""MuJoCo's C functions and arrays at addresses, for functions that Numba compiles.

Importing this module makes the C library that Python's `mujoco` has loaded known to Numba; it raises ImportError where
that is not possible. An error inside MuJoCo (`mju_error`, such as an exhausted stack) prints its message and ends the
process with exit code 1: Python's bindings, which would raise, are not involved.
"""

import ctypes
import sys
from pathlib import Path

import mujoco  # loads the library
import numpy as np
import psutil
from llvmlite import binding
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

_FUNCTIONS = ("mj_step", "mj_rnePostConstraint")


def _library() -> str:
    """Path of the C library in this process."""
    if sys.platform != "linux":
        raise ImportError("only Linux says which libraries a process has loaded")
    try:
        maps = psutil.Process().memory_maps()
    except (psutil.Error, OSError, AttributeError) as error:  # some sandboxes and kernels do not show them
        raise ImportError(f"the libraries of this process cannot be read ({error})") from None
    for mapped in maps:
        if Path(mapped.path).name.startswith("libmujoco.so"):
            return str(mapped.path)
    raise ImportError(f"Python's mujoco {mujoco.__version__} has not loaded libmujoco.so")


def _load() -> None:
    if not (hasattr(mujoco.MjModel, "_address") and hasattr(mujoco.MjData, "_address")):
        raise ImportError(f"Python's mujoco {mujoco.__version__} does not say where models and data are")
    path = _library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:  # an update or removal of the package deleted the file of the loaded library
        raise ImportError(f"the library of this process cannot be opened again ({error})") from None
    missing = [name for name in _FUNCTIONS if not hasattr(library, name)]
    if missing:
        raise ImportError(f"{path} has no {missing[0]}")
    binding.load_library_permanently(path)


_load()
_model_and_data = types.void(types.intp, types.intp)
mj_step = types.ExternalFunction("mj_step", _model_and_data)
mj_rnePostConstraint = types.ExternalFunction("mj_rnePostConstraint", _model_and_data)


@intrinsic
def fused_multiply_add(_context, x, y, z):
    """X · y + z, rounded once."""

    def generate(_context, builder, _signature, arguments):
        return builder.fma(*arguments)

    return types.float64(x, y, z), generate


def _pointer_to(element):
    """A compiled function from an address to a pointer."""

    @intrinsic
    def pointer(_context, address):
        def generate(context, builder, _signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(types.CPointer(element)))

        return types.CPointer(element)(address), generate

    return pointer


_float64_pointer, _float32_pointer, _int64_pointer = map(_pointer_to, (types.float64, types.float32, types.int64))


@njit(cache=True, inline="always")
def float64_at(address, count):
    """The array of so many float64 numbers at an address."""
    return carray(_float64_pointer(address), (count,), np.float64)


@njit(cache=True, inline="always")
def float32_at(address, count):
    """The array of so many float32 numbers at an address."""
    return carray(_float32_pointer(address), (count,), np.float32)


@njit(cache=True, inline="always")
def int64_at(address, count):
    """The array of so many int64 numbers at an address."""
    return carray(_int64_pointer(address), (count,), np.int64)
