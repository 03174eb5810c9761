"""Norms of linear layers as a compiled CPU loop; the reference implementation is in `norms`."""

from numba import njit


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def linear_norms(inputs, gradient, out, has_weight, has_bias):
    """Fill `out` [rows] with each row's squared gradient norm of a linear layer (see `norms.linear`)."""
    for row in range(out.shape[0]):
        coefficient = _squared_norm(inputs, row) if has_weight else out.dtype.type(0)
        if has_bias:
            coefficient += out.dtype.type(1)
        out[row] = coefficient * _squared_norm(gradient, row)


@njit(cache=True, inline="always", fastmath={"reassoc", "contract", "nsz"})
def _squared_norm(rows, row):
    total = rows.dtype.type(0)
    for column in range(rows.shape[1]):
        total += rows[row, column] * rows[row, column]
    return total
