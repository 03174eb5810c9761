"""Layers with a leading member axis: P independent layers in one batched operation."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class PopulationLinear(nn.Module):
    """P linear layers: z[p] = a[p] · weight[p] + bias[p]."""

    def __init__(self, members: int, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight: Float[Tensor, "P in out"] = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias: Float[Tensor, "P 1 out"] | None = nn.Parameter(torch.empty(members, 1, outputs)) if bias else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Float[Tensor, "P B in"]) -> Float[Tensor, "P B out"]:
        """Apply each member's layer to its own batch."""
        return torch.bmm(inputs, self.weight) if self.bias is None else torch.baddbmm(self.bias, inputs, self.weight)


class PopulationLayerNorm(nn.Module):
    """P layer normalisations over the last axis."""

    def __init__(self, members: int, features: int, eps: float = 1e-5):
        super().__init__()
        self.features = features
        self.eps = eps
        self.weight: Float[Tensor, "P 1 features"] = nn.Parameter(torch.ones(members, 1, features))
        self.bias: Float[Tensor, "P 1 features"] = nn.Parameter(torch.zeros(members, 1, features))

    def forward(self, inputs: Float[Tensor, "P B features"]) -> Float[Tensor, "P B features"]:
        """Normalise each row and apply each member's scale and shift."""
        normalised = nn.functional.layer_norm(inputs, (self.features,), eps=self.eps)
        return torch.addcmul(self.bias, normalised, self.weight)
