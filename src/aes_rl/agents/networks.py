"""Networks of P members, whose initial parameters depend only on the seed of each member."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aes_rl.gradients.perceptron import Perceptron
from aes_rl.layers import PopulationLinear
from aes_rl.streams import Stream, Streams
from aes_rl.types import as_tensor


class TwinCritic(nn.Module):
    """Two critics per member as one network of 2P members; critic k of member p is number 2p + k."""

    def __init__(self, members: int, observation_size: int, action_size: int, hidden: Sequence[int]):
        super().__init__()
        self.body = Perceptron(2 * members, [observation_size, *hidden, 1], action_size, late_layer=0)

    def forward(
        self,
        observation: Float[Tensor, "P B O"],
        action: Float[Tensor, "P B A"],
        tap: Float[Tensor, "twoP B"] | None = None,
        norm_members: slice | None = None,
    ) -> Float[Tensor, "P 2 B"]:
        """The values of the actions under both critics."""
        value: Tensor = self.body(observation, action, tap, norm_members)
        return value.view(-1, 2, observation.shape[1])


def initialise(network: nn.Module, streams: Streams, first_layer: int, last_bound: float | None = None) -> int:
    """Initialise uniformly in ±1/√fan-in, the last layer in ±`last_bound` if given; return the next layer's number.

    A member's parameters depend on its seed and on the number of the layer, not on the other members.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, PopulationLinear)]
    for number, layer in enumerate(layers):
        bound = 1 / math.sqrt(layer.weight.shape[1])
        if last_bound is not None and number == len(layers) - 1:
            bound = last_bound
        parameters = list(layer.parameters())
        counts = [parameter.numel() // len(streams.seeds) for parameter in parameters]
        uniforms = as_tensor(streams.uniform(Stream.PARAMETERS, streams.counter(first_layer + number), sum(counts)))
        for parameter, part in zip(parameters, torch.split(uniforms, counts, dim=1), strict=True):
            parameter.data.copy_((2 * part - 1).mul_(bound).reshape(parameter.shape))
    return first_layer + len(layers)
