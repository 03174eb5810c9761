"""Tapped norms against one gradient a sample, and parameter gradients against an untapped network."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from aes_rl.gradients import Taps, exact, squared_norms
from aes_rl.layers import PopulationLayerNorm, PopulationLinear

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def networks(inputs: int, hidden: int) -> dict[str, nn.Module]:
    return {
        "linear": nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1)),
        "without bias": nn.Sequential(nn.Linear(inputs, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, 1)),
        "in place": nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 1)),
        "norm": nn.Sequential(nn.Linear(inputs, hidden), nn.LayerNorm(hidden, eps=0.1), nn.ELU(), nn.Linear(hidden, 1)),
        "norm without bias": nn.Sequential(nn.LayerNorm(inputs, eps=0.1, bias=False), nn.Linear(inputs, 1)),
        "norm without affine": nn.Sequential(
            nn.LayerNorm(inputs, eps=0.1, elementwise_affine=False), nn.Linear(inputs, 1)
        ),
    }


def loss_of_one(network: nn.Module):
    def loss(parameters, sample, target):
        prediction = torch.func.functional_call(network, parameters, (sample.unsqueeze(0),))
        return (prediction.squeeze() - target).square()

    return loss


def targets_for(network: nn.Module, samples: torch.Tensor) -> torch.Tensor:
    """At least one from the predictions: float32 loses digits where a prediction happens to meet its target."""
    predictions = network(samples).squeeze(-1).detach()
    return predictions + torch.randn_like(predictions).sign() * (1 + torch.rand_like(predictions))


def tapped_norms(network, taps, samples, targets, weights, reduction):
    tap = taps.tap(samples.shape[:-1])
    with taps.recording(tap):
        terms = weights * (network(samples).squeeze(-1) - targets).square()
        loss = terms.mean(dim=-1).sum() if reduction == "mean" else terms.sum()
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return squared_norms(tap.grad, weights, reduction), gradients


@pytest.mark.parametrize("kind", networks(1, 1))
@pytest.mark.parametrize("dtype", TOLERANCE)
@given(
    batch=st.integers(1, 9),
    inputs=st.integers(1, 7),
    hidden=st.integers(2, 8),
    reduction=st.sampled_from(["mean", "sum"]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=15, deadline=None)
def test_norms_equal_the_slow_twin(kind, dtype, batch, inputs, hidden, reduction, weighted, seed) -> None:
    torch.manual_seed(seed)
    network = networks(inputs, hidden)[kind].to(dtype)
    samples = torch.randn(batch, inputs, dtype=dtype)
    targets = targets_for(network, samples)
    weights = torch.rand(batch, dtype=dtype) * 3 + 0.1 if weighted else torch.ones(batch, dtype=dtype)
    untapped = copy.deepcopy(network)
    found, gradients = tapped_norms(network, Taps(network), samples, targets, weights, reduction)
    double = copy.deepcopy(untapped).double()
    expected = exact.squared_norms(
        loss_of_one(double), dict(double.named_parameters()), samples.double(), targets.double()
    )
    tolerance = TOLERANCE[dtype]
    assert torch.allclose(found.double(), expected, rtol=tolerance, atol=tolerance * float(expected.max()))

    terms = weights * (untapped(samples).squeeze(-1) - targets).square()
    plain = torch.autograd.grad(terms.mean() if reduction == "mean" else terms.sum(), list(untapped.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(gradients, plain, strict=True))


@pytest.mark.parametrize("dtype", TOLERANCE)
@given(
    members=st.integers(1, 4),
    batch=st.integers(1, 6),
    inputs=st.integers(1, 6),
    hidden=st.integers(2, 6),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=20, deadline=None)
def test_population_norms_equal_the_slow_twin(dtype, members, batch, inputs, hidden, bias, seed) -> None:
    torch.manual_seed(seed)
    network = nn.Sequential(
        PopulationLinear(members, inputs, hidden, bias=bias),
        PopulationLayerNorm(members, hidden, eps=0.1),
        nn.ReLU(inplace=True),
        PopulationLinear(members, hidden, 1),
    ).to(dtype)
    samples = torch.randn(members, batch, inputs, dtype=dtype)
    targets = targets_for(network, samples)
    weights = torch.rand(members, batch, dtype=dtype) + 0.1
    found, _ = tapped_norms(network, Taps(network), samples, targets, weights, "mean")
    double = copy.deepcopy(network).double()

    def loss(parameters, sample, target):
        prediction = torch.func.functional_call(double, parameters, (sample.unsqueeze(1),))
        return (prediction.flatten() - target).square()

    expected = exact.population_squared_norms(loss, dict(double.named_parameters()), samples.double(), targets.double())
    tolerance = TOLERANCE[dtype]
    assert torch.allclose(found.double(), expected, rtol=tolerance, atol=tolerance * float(expected.max()))


def test_population_layers_compute_each_member_alone() -> None:
    torch.manual_seed(0)
    layer, norm = PopulationLinear(3, 4, 5), PopulationLayerNorm(3, 5)
    nn.init.normal_(norm.weight)
    samples = torch.randn(3, 2, 4)
    found = norm(layer(samples))
    for member in range(3):
        alone = samples[member] @ layer.weight[member] + layer.bias[member]
        alone = nn.functional.layer_norm(alone, (5,), norm.weight[member, 0], norm.bias[member, 0])
        assert torch.allclose(found[member], alone, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("kind", ["linear", "in place", "norm"])
def test_norms_under_compile(kind) -> None:
    torch.manual_seed(0)
    network = networks(3, 4)[kind].double()
    taps = Taps(network)
    samples, targets, weights = torch.randn(5, 3).double(), torch.randn(5).double(), torch.rand(5).double() + 0.1
    expected, expected_gradients = tapped_norms(network, taps, samples, targets, weights, "mean")

    def weighted_loss(samples, targets, weights, tap):
        with taps.recording(tap):
            return (weights * (network(samples).squeeze(-1) - targets).square()).mean()

    tap = taps.tap((5,))
    loss = torch.compile(weighted_loss, fullgraph=True)(samples, targets, weights, tap)
    *gradients, tapped = torch.autograd.grad(loss, [*network.parameters(), tap])
    assert torch.allclose(squared_norms(tapped, weights), expected, rtol=1e-10)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_population_norms_under_compile() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        PopulationLinear(2, 3, 4), PopulationLayerNorm(2, 4), nn.ReLU(inplace=True), PopulationLinear(2, 4, 1)
    ).double()
    taps = Taps(network)
    samples, targets, weights = torch.randn(2, 5, 3).double(), torch.randn(2, 5).double(), torch.rand(2, 5).double()
    expected, _ = tapped_norms(network, taps, samples, targets, weights, "mean")

    def weighted_loss(tap):
        with taps.recording(tap):
            return (weights * (network(samples).squeeze(-1) - targets).square()).mean(-1).sum()

    tap = taps.tap((2, 5))
    (tapped,) = torch.autograd.grad(torch.compile(weighted_loss, fullgraph=True)(tap), [tap])
    assert torch.allclose(squared_norms(tapped, weights), expected, rtol=1e-10)


def test_frozen_parameters_do_not_count() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    network[0].weight.requires_grad_(False)
    samples, targets = torch.randn(5, 3).double(), torch.randn(5).double()
    taps = Taps(network)
    tap = taps.tap((5,))
    with taps.recording(tap):
        loss = (network(samples).squeeze(-1) - targets).square().mean()
    loss.backward()
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}

    def loss_of_trained(parameters, sample, target):
        everything = dict(network.named_parameters()) | parameters
        prediction = torch.func.functional_call(network, everything, (sample.unsqueeze(0),))
        return (prediction.squeeze() - target).square()

    expected = exact.squared_norms(loss_of_trained, trained, samples, targets)
    assert torch.allclose(squared_norms(tap.grad), expected, rtol=1e-10)


@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_an_output_changed_in_place_counts_as_it_was(batch) -> None:
    """Two batch axes make the output of a linear layer a view."""
    torch.manual_seed(0)
    apart = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    in_place = nn.Sequential(apart[0], nn.ReLU(inplace=True), apart[2])
    inputs, found = torch.randn(*batch, 3), []
    for network in (apart, in_place):
        taps = Taps(network)
        tap = taps.tap(batch)
        with taps.recording(tap):
            loss = network(inputs).square().mean()
        loss.backward()
        taps.remove()
        found.append(tap.grad)
    assert torch.equal(*found)


def test_half_precision_is_recorded() -> None:
    network = nn.Linear(3, 1)
    taps = Taps(network)
    tap = taps.tap((5,))
    with taps.recording(tap), torch.autocast("cpu", torch.bfloat16):
        loss = network(torch.randn(5, 3).bfloat16()).float().square().mean()
    loss.backward()
    assert tap.grad.dtype == torch.float32
    assert (tap.grad > 0).all()


def test_a_gradient_of_a_gradient_is_refused() -> None:
    network = nn.Linear(3, 1)
    taps = Taps(network)
    inputs = torch.randn(5, 3, requires_grad=True)
    with taps.recording(taps.tap((5,))):
        value = network(inputs).sum()
    with pytest.raises(RuntimeError, match="create_graph"):
        torch.autograd.grad(value, inputs, create_graph=True)


def test_passes_outside_recording_and_after_remove_count_nothing() -> None:
    network = nn.Linear(2, 1)
    taps = Taps(network)
    tap = taps.tap((3,))
    with taps.recording(tap):
        pass
    network(torch.randn(3, 2)).sum().backward()
    assert tap.grad is None
    taps.remove()
    with taps.recording(tap):
        network(torch.randn(3, 2)).sum().backward()
    assert tap.grad is None


def test_a_layer_without_closed_form_is_named() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(1, 1, 3))
    with pytest.raises(TypeError, match=r"layer '1' is a Conv1d.*exact\.squared_norms"):
        Taps(network)


def test_a_subclass_of_linear_is_refused() -> None:
    class Scaled(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    with pytest.raises(TypeError, match="Scaled"):
        Taps(Scaled(2, 2))


def test_shared_parameters_are_refused() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    with pytest.raises(TypeError, match="'0' and '1' share a parameter"):
        Taps(network)


def test_a_computed_weight_is_refused() -> None:
    """Spectral norm keeps the layer's type and trains another parameter."""
    with pytest.raises(TypeError, match="computes its weight from other parameters"):
        Taps(nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 3))))


def test_a_network_without_trained_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no trained parameter"):
        Taps(nn.ReLU())


def test_a_layer_called_twice_raises() -> None:
    network = nn.Linear(3, 3)
    taps = Taps(network)
    with taps.recording(taps.tap((2,))), pytest.raises(RuntimeError, match="called twice"):
        network(network(torch.randn(2, 3)))


@pytest.mark.parametrize("shape", [(2, 5, 3), (4, 3)])
def test_extra_axes_and_other_batches_raise(shape) -> None:
    network = nn.Linear(3, 3)
    taps = Taps(network)
    with taps.recording(taps.tap((2,))), pytest.raises(ValueError, match="no further axes"):
        network(torch.randn(shape))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8, affine=False), nn.BatchNorm1d(8).requires_grad_(False)])
def test_batch_norm_without_parameters_is_refused(layer) -> None:
    """It has nothing to train, but couples the samples of a batch."""
    with pytest.raises(TypeError, match="layer '1' is a BatchNorm1d, which makes the loss of a sample depend"):
        Taps(nn.Sequential(nn.Linear(3, 8), layer, nn.ReLU(), nn.Linear(8, 1)))


def test_norms_under_autocast() -> None:
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    taps = Taps(network)
    tap = taps.tap((5,))
    with torch.autocast("cpu", dtype=torch.bfloat16), taps.recording(tap):
        output = network(torch.randn(5, 3))
    output.float().square().mean().backward()
    assert tap.grad is not None
    assert bool((tap.grad > 0).all())
