"""Closed forms: the squared norm of one sample's gradient, layer by layer, from quantities the update has anyway.

For a layer whose parameters see one sample through an input a and an output z, the sample's parameter gradient is an
outer product, and its squared norm needs only ∂L/∂z. A closed form gives the coefficient c in Σ_j c_j (∂L/∂z_j)²:
one number a sample, [..., B], where it is the same for all outputs j, or one a sample and output, [..., B, outputs].
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.functional import layer_norm

from aes_rl.layers import PopulationLayerNorm, PopulationLinear

ClosedForm = Callable[[nn.Module, Tensor], Tensor]


def linear(layer: nn.Module, inputs: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch"]:
    """‖a‖² for the weight and 1 for the bias, each where it is trained: ‖∂L/∂W‖² = ‖a‖²·‖∂L/∂z‖²."""
    assert isinstance(layer, nn.Linear | PopulationLinear)
    coefficient = inputs.new_zeros(inputs.shape[:-1])
    if layer.weight.requires_grad:
        coefficient = vector_norm(inputs, dim=-1).square()
    if layer.bias is not None and layer.bias.requires_grad:
        coefficient = coefficient + 1
    return coefficient


def normalisation(layer: nn.Module, inputs: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
    """x̂² for the scale and 1 for the shift, each where it is trained: ∂L/∂scale_j = x̂_j · ∂L/∂z_j."""
    if isinstance(layer, nn.LayerNorm):
        normalised = layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    else:
        assert isinstance(layer, PopulationLayerNorm)
        normalised = layer_norm(inputs, (layer.features,), eps=layer.eps)
    coefficient = inputs.new_zeros(inputs.shape)
    if isinstance(layer.weight, Tensor) and layer.weight.requires_grad:
        coefficient = normalised.square()
    if isinstance(layer.bias, Tensor) and layer.bias.requires_grad:
        coefficient = coefficient + 1
    return coefficient


CLOSED_FORMS: dict[type[nn.Module], ClosedForm] = {
    nn.Linear: linear,
    PopulationLinear: linear,
    nn.LayerNorm: normalisation,
    PopulationLayerNorm: normalisation,
}
"""Layers whose norms have a closed form; subclasses may compute something else and do not count."""
