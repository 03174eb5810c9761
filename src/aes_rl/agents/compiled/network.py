"""Forward and backward passes of perceptrons in preallocated memory: products, and compiled loops between them."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from aes_rl.agents.compiled import loops
from aes_rl.agents.compiled.products import product
from aes_rl.gradients.perceptron import Perceptron

Floats = NDArray[np.float32]


class Pass:
    """A perceptron's pass over a fixed number of rows: fill `inputs`, `forward`, fill `gradient`, `backward`.

    The first `trained` rows count for the gradients of the parameters. Gradients are propagated through the first
    `differentiated` rows, which include these.
    """

    def __init__(self, network: Perceptron, rows: int, trained: int = 0, differentiated: int = 0):
        layers = [_Layer(network, number, rows, trained, differentiated) for number in range(len(network.weights))]
        for layer, following in pairwise(layers):
            layer.connect(following)
        self._layers, self._trained = layers, trained
        self.late_size = network.late_size
        self._late = layers[network.late_layer] if network.late_size else None
        self.inputs = layers[0].inputs
        """Inputs [K, rows, in] of the network's K copies."""
        self.output = layers[-1].output
        """Outputs [K, rows, out]."""
        self.gradient = layers[-1].gradient
        """The loss's derivative with respect to the outputs, [K, differentiated, out]."""

    @property
    def late_inputs(self) -> Floats:
        """The inputs [K, rows, …] of the layer at which late inputs enter; they are its last columns."""
        assert self._late is not None
        return self._late.inputs

    @property
    def of_late(self) -> Floats:
        """The derivative with respect to the late inputs of the rows that are differentiated but not trained."""
        assert self._late is not None
        return self._late.of_late

    def forward(self) -> None:
        """Compute the outputs."""
        last = self._layers[-1]
        for layer in self._layers:
            if layer.is_single:
                loops.single_output(layer.inputs, self._layers[-2].bias, layer.weight, layer.bias, layer.output)
                continue
            layer.multiply()
            if not layer.feeds_single:
                loops.add_bias(layer.output, layer.width, layer.bias, layer is not last)

    def backward(self, norms: Floats, first: int, last: int) -> None:
        """Compute the gradients; adds each sample's squared gradient norm to `norms` for members `first` to `last`."""
        for number, layer in reversed(list(enumerate(self._layers))):
            if layer.is_single:
                loops.single_output_gradient(
                    layer.gradient, layer.inputs, layer.weight, self._trained, self._layers[number - 1].gradient,
                    layer.of_weight, layer.of_bias, norms, first, last,
                )  # fmt: skip
                continue
            loops.layer_gradient(
                layer.gradient, layer.rows, layer.output, layer.needs_mask, layer.inputs, self._trained, layer.of_bias,
                norms, first, last,
            )  # fmt: skip
            for multiply in layer.products:
                multiply()


class _Layer:
    """The memory of one layer of a pass, and the products that its gradients need."""

    def __init__(self, network: Perceptron, number: int, rows: int, trained: int, differentiated: int):
        weight, bias, late = network.weights[number], network.biases[number], network.late_size
        copies, entering, self.width = weight.shape
        is_last = number == len(network.weights) - 1
        has_late_inputs = late > 0 and number == network.late_layer
        self.is_single = is_last and number > 0 and self.width == 1 and not has_late_inputs
        """A last layer with one output, to which the layer before it, its only input, leaves bias and ReLU."""
        self.feeds_single, self.needs_mask = False, not is_last
        self.weight, self.bias = weight.numpy(), bias.numpy()
        inputs, output = torch.zeros(copies, rows, entering), torch.zeros(copies, rows, self.width)
        self.factors = (inputs, weight)
        self.inputs, self.output = inputs.numpy(), output.numpy()
        self.multiply = product(*self.factors, output)
        # Below the layer at which late inputs enter, only the trained rows need a gradient.
        self.rows = trained if late and number < network.late_layer else differentiated
        self._gradient = torch.zeros(copies, differentiated, self.width)
        self.gradient = self._gradient.numpy()
        of_weight, of_bias = (
            part.grad if trained and part.grad is not None else torch.zeros_like(part) for part in (weight, bias)
        )
        self.of_weight, self.of_bias = of_weight.numpy(), of_bias.numpy()
        self.products: list[Callable[[], object]] = []
        """The products that its gradients need."""
        if trained:
            self.products.append(product(inputs[:, :trained].transpose(1, 2), self._gradient[:, :trained], of_weight))
        if has_late_inputs and differentiated > trained:
            out = torch.zeros(copies, differentiated - trained, late)
            self.products.append(product(self._gradient[:, trained:], weight[:, -late:].transpose(1, 2), out))
            self.of_late = out.numpy()

    def connect(self, following: "_Layer") -> None:
        """Write outputs into the inputs of the next layer, and let its gradient flow back."""
        inputs, weight = following.factors
        self.multiply, self.output = product(*self.factors, inputs[..., : self.width]), following.inputs
        self.feeds_single, self.needs_mask = following.is_single, not following.is_single
        if self.rows:
            rows = slice(0, self.rows)
            back = weight[:, : self.width].transpose(1, 2)
            following.products.append(product(following._gradient[:, rows], back, self._gradient[:, rows]))
