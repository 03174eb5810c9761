"""Closed forms of the squared per-sample gradient norm of a layer, from quantities that the update computes anyway.

For a layer with input a and output z per sample, the sample's weight gradient is an outer product, so its squared norm
needs only a and ∂L/∂z.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.functional import layer_norm

from aes_rl.layers import PopulationLayerNorm, PopulationLinear

_HAS_NUMBA = find_spec("numba") is not None  # optional on machines with a GPU
ClosedForm = Callable[[Tensor, Tensor], Tensor]
"""Maps a layer's inputs and the gradient of its outputs to one squared norm per sample, [..., B]."""


def linear(layer: nn.Module) -> ClosedForm | None:
    """‖∂L/∂W‖² = ‖a‖²·‖∂L/∂z‖² for the weight and ‖∂L/∂z‖² for the bias, for those that are trained now."""
    weight, bias = layer.weight, layer.bias
    return _LINEAR[isinstance(weight, Tensor) and weight.requires_grad, isinstance(bias, Tensor) and bias.requires_grad]


def linear_norms(
    inputs: Float[Tensor, "*batch in"],
    gradient: Float[Tensor, "*batch out"],
    has_weight: bool = True,
    has_bias: bool = True,
) -> Float[Tensor, "*batch"]:
    """The squared norms of `linear`, for a layer that trains the weight, the bias, or both."""
    is_on_cpu = inputs.is_cpu and gradient.dtype == inputs.dtype and inputs.dtype in (torch.float32, torch.float64)
    if is_on_cpu and _HAS_NUMBA and not torch.compiler.is_compiling():
        return _linear_norms_on_cpu(inputs, gradient, has_weight, has_bias)
    # Squaring the norm reads the memory once and makes no copy; summing squares would do both.
    share: Tensor = vector_norm(gradient, dim=-1).square()
    if not has_weight:
        return share if has_bias else torch.zeros_like(share)
    coefficient: Tensor = vector_norm(inputs, dim=-1).square()
    return share * (coefficient + 1 if has_bias else coefficient)


_LINEAR: dict[tuple[bool, bool], ClosedForm | None] = {
    (has_weight, has_bias): partial(linear_norms, has_weight=has_weight, has_bias=has_bias)
    for has_weight, has_bias in ((True, True), (True, False), (False, True))
} | {(False, False): None}
"""`linear_norms` by whether a layer trains its weight and its bias."""


def scaled_norms(
    inputs: Float[Tensor, "P B in"],
    gradient: Float[Tensor, "P B out"],
    of_weight: Float[Tensor, "P in out"],
    of_bias: Float[Tensor, "P 1 out"],
) -> Float[Tensor, "P B"]:
    """Σ_jk a_j² · (∂L/∂z_k)² · s_jk, plus the same for the bias: squared norms in a diagonal metric s."""
    return (torch.baddbmm(of_bias, inputs.square(), of_weight) * gradient.square()).sum(dim=-1)


def _linear_norms_on_cpu(
    inputs: Float[Tensor, "*batch in"], gradient: Float[Tensor, "*batch out"], has_weight: bool, has_bias: bool
) -> Float[Tensor, "*batch"]:
    """`linear_norms` as one compiled loop, because the call overhead of tensor operations exceeds the arithmetic."""
    kernel = _kernel()
    if inputs.dim() == 2:
        share = np.empty(len(inputs), inputs.numpy().dtype)
        kernel(inputs.numpy(), gradient.numpy(), share, has_weight, has_bias)
        return torch.from_numpy(share)
    shares = gradient.new_empty(gradient.shape[:-1])
    rows = inputs.reshape(-1, inputs.shape[-1]).numpy(), gradient.reshape(-1, gradient.shape[-1]).numpy()
    kernel(*rows, shares.view(-1).numpy(), has_weight, has_bias)
    return shares


@cache
def _kernel() -> Callable[..., None]:
    from aes_rl.gradients import loops

    loop: Callable[..., None] = loops.linear_norms
    return loop


def normalisation(layer: nn.Module) -> ClosedForm | None:
    """∂L/∂scale_j = x̂_j · ∂L/∂z_j and ∂L/∂shift_j = ∂L/∂z_j, squared and summed over those trained now."""
    assert isinstance(layer, nn.LayerNorm | PopulationLayerNorm)
    shape = layer.normalized_shape if isinstance(layer, nn.LayerNorm) else (layer.features,)
    has_weight = isinstance(layer.weight, Tensor) and layer.weight.requires_grad
    has_bias = isinstance(layer.bias, Tensor) and layer.bias.requires_grad
    if not has_weight and not has_bias:
        return None
    return partial(_normalisation_norms, shape=tuple(shape), eps=layer.eps, has_weight=has_weight, has_bias=has_bias)


def _normalisation_norms(
    inputs: Float[Tensor, "*batch features"],
    gradient: Float[Tensor, "*batch features"],
    shape: tuple[int, ...],
    eps: float,
    has_weight: bool,
    has_bias: bool,
) -> Float[Tensor, "*batch"]:
    coefficient = layer_norm(inputs, shape, eps=eps).square() if has_weight else inputs.new_zeros(inputs.shape)
    if has_bias:
        coefficient = coefficient + 1
    return (coefficient * gradient.square()).flatten(-len(shape)).sum(dim=-1)


CLOSED_FORMS: dict[type[nn.Module], Callable[[nn.Module], ClosedForm | None]] = {
    nn.Linear: linear,
    PopulationLinear: linear,
    nn.LayerNorm: normalisation,
    PopulationLayerNorm: normalisation,
}
"""Layers whose norms have a closed form. Subclasses are not included: they may compute something else."""
