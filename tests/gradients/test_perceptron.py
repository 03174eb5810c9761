"""The perceptron against ordinary layers under autograd and `Taps`: outputs, gradients, norms."""

import pytest
import torch
from torch import nn

from aes_rl.gradients import Taps, norms
from aes_rl.gradients.perceptron import Perceptron

MEMBERS, BATCH = 3, 7


def pair(late_size=0, dtype=torch.float64):
    """A perceptron, and the same layers for autograd."""
    torch.manual_seed(0)
    network = Perceptron(MEMBERS, [4, 6, 5, 2], late_size).to(dtype)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    twin = nn.ModuleList(Perceptron(MEMBERS, [4, 6, 5, 2], late_size).to(dtype).layers).requires_grad_()
    twin.load_state_dict(network.layers.state_dict())
    return network, twin


def twin_output(twin, inputs, late=None):
    hidden = torch.relu(twin[0](inputs))
    hidden = hidden if late is None else torch.cat([hidden, late], -1)
    return twin[2](torch.relu(twin[1](hidden)))


@pytest.mark.parametrize("late_size", [0, 3])
@pytest.mark.parametrize("norm_members", [None, slice(None), slice(1, 2)])
def test_trained_pass_is_autograds(late_size, norm_members) -> None:
    network, twin = pair(late_size)
    inputs = torch.randn(MEMBERS, BATCH, 4, dtype=torch.float64, requires_grad=True)
    late = torch.randn(MEMBERS, BATCH, late_size, dtype=torch.float64, requires_grad=True) if late_size else None
    tap = torch.zeros(MEMBERS, BATCH, dtype=torch.float64, requires_grad=True)
    output = network(inputs, late, tap, norm_members)
    taps = Taps(twin)
    twin_tap = torch.zeros_like(tap, requires_grad=True)
    with taps.recording(twin_tap):
        expected = twin_output(twin, inputs, late)
    assert torch.equal(output, expected)
    entered = [part for part in (inputs, late) if part is not None]
    found = torch.autograd.grad(output.square().sum(), [*entered, tap], allow_unused=True)
    wanted = torch.autograd.grad(expected.square().sum(), [*entered, *twin.parameters()])
    for one, other in zip(found[:-1], wanted, strict=False):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    for parameter, gradient in zip(network.parameters(), wanted[len(entered) :], strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-12)
    if norm_members is not None:
        norms = torch.zeros(MEMBERS, BATCH, dtype=torch.float64)
        norms[norm_members] = twin_tap.grad[norm_members]
        torch.testing.assert_close(found[-1], norms, rtol=1e-12, atol=1e-12)
    else:
        assert found[-1] is None


def test_a_pass_without_a_tap_leaves_the_gradients_alone() -> None:
    """The critic inside the actor's loss must not leak into the critic's own gradients."""
    network, twin = pair()
    inputs = torch.randn(MEMBERS, BATCH, 4, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(network(inputs).square().sum(), [inputs])
    (wanted,) = torch.autograd.grad(twin_output(twin, inputs).square().sum(), [inputs])
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad.isnan().all() for parameter in network.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("has_weight", "has_bias"), [(True, True), (True, False), (False, True), (False, False)])
def test_compiled_norms_are_the_plain_ones(dtype, has_weight, has_bias, monkeypatch) -> None:
    inputs, gradient = torch.randn(2, 9, 33, dtype=dtype), torch.randn(2, 9, 17, dtype=dtype)[..., :16]
    compiled = norms.linear_norms(inputs, gradient, has_weight, has_bias)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    plain = norms.linear_norms(inputs, gradient, has_weight, has_bias)
    torch.testing.assert_close(compiled, plain)
    assert compiled.dtype == dtype
