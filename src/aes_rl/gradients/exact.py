"""Slow, exact per-sample gradient norms for any network: one gradient per sample, with `torch.func`."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

Loss = Callable[..., Tensor]


def squared_norms(loss: Loss, parameters: Mapping[str, Tensor], *samples: Tensor) -> Float[Tensor, "B"]:
    """The squared norm of each sample's gradient of `loss(parameters, *sample)`, a scalar; samples are [B, …]."""
    fixed = {name: value.detach() for name, value in parameters.items()}

    def squared_norm(*sample: Tensor) -> Tensor:
        gradients = torch.func.grad(loss)(fixed, *sample)
        return torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum()

    result: Tensor = torch.func.vmap(squared_norm)(*samples)
    return result


def population_squared_norms(loss: Loss, parameters: Mapping[str, Tensor], *samples: Tensor) -> Float[Tensor, "P B"]:
    """As `squared_norms`, for P members: the loss is [P], the parameters are [P, …] and the samples [P, B, …].

    The loss of a member must depend on its own parameters only, as in population layers.
    """
    fixed = {name: value.detach() for name, value in parameters.items()}

    def squared_norm(*sample: Tensor) -> Tensor:
        gradients = torch.func.grad(lambda p, *s: loss(p, *s).sum())(fixed, *sample)
        return torch.stack([gradient.square().flatten(1).sum(dim=1) for gradient in gradients.values()]).sum(dim=0)

    result: Tensor = torch.func.vmap(squared_norm, in_dims=1, out_dims=1)(*samples)
    return result
