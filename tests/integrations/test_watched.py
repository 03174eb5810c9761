"""Weights on gradients around a pass that knows nothing of them."""

import copy

import pytest
import torch
from torch import nn

from aes_rl.integrations.selection import Pending
from aes_rl.integrations.watched import Watched
from aes_rl.types import Signal


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU(inplace=True)])
def test_weights_reach_a_head_whatever_follows_it(activation) -> None:
    """An operation in place on what leaves the network must not lose the weights or the norms."""
    torch.manual_seed(0)
    network, inputs, weights = nn.Linear(3, 2), torch.randn(5, 3), torch.rand(5) + 0.5
    plain = copy.deepcopy(network)
    watched = Watched("critic", network, [network], Signal.GRADIENT_NORM)
    pending = Pending(1, None, weights, Signal.GRADIENT_NORM)
    watched.open(pending)
    output = activation(network(inputs))
    watched.close()
    output.sum(dim=-1).mean().backward()
    watched.report(pending)
    rows = torch.relu(plain(inputs)).sum(dim=-1)
    (weights * rows).mean().backward(retain_graph=True)
    assert torch.allclose(network.weight.grad, plain.weight.grad, rtol=1e-6)
    for sample in range(5):
        gradients = torch.autograd.grad(rows[sample], list(plain.parameters()), retain_graph=True)
        expected = sum(gradient.square().sum() for gradient in gradients)
        assert torch.allclose(pending.gradient_norm["critic"][sample], expected, rtol=1e-5)
