"""The Triton kernels against their twins: on a GPU, or on the CPU where Triton interprets (TRITON_INTERPRET=1)."""

import os

import pytest
import torch

from aes_rl import engines
from aes_rl.streams import Stream, Streams

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU or TRITON_INTERPRET=1"
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's integers overflow as they should
]


@pytest.mark.parametrize("counter", [0, 5, 123_456_789])
def test_uniform_numbers_are_the_same_bits(counter) -> None:
    seeds = [1, 2**63 + 5, 77]
    plain, fused = (Streams(seeds, engines.choose(name, DEVICE)) for name in ("torch", "triton"))
    clock = torch.tensor(counter, device=DEVICE)
    expected, found = (streams.uniform(Stream.DRAW, clock, 300) for streams in (plain, fused))
    assert torch.equal(expected, found)


@pytest.mark.parametrize("capacity", [1, 100, 128, 5000, 20_000])
def test_trees_write_and_draw_the_same(capacity) -> None:
    from aes_rl.samplers.block_tree import BlockTree
    from aes_rl.samplers.triton_tree import TritonTree

    generator = torch.Generator().manual_seed(capacity)
    live = max(1, capacity * 2 // 3)
    plain, fused = BlockTree(3, capacity, DEVICE), TritonTree(3, capacity, DEVICE)
    floor = torch.tensor([[0.0], [0.2], [1.0]], dtype=torch.float64, device=DEVICE)

    def random(*shape):
        return torch.rand(shape, dtype=torch.float64, generator=generator).to(DEVICE)

    def slots(*shape):
        return torch.randint(0, live, shape, generator=generator).to(DEVICE)

    masses = random(3, live)
    for tree in (plain, fused):
        tree.refill(slice(0, 3), masses)
    for _ in range(3):
        for part, chosen, values, kept in (
            (slice(1, 3), slots(2, 9), random(2, 9), random(2, 9) > 0.4),  # nine of a few slots: some repeat
            (slice(0, 3), slots(3, 1), random(3, 1), None),
        ):
            for tree in (plain, fused):
                tree.write(part, chosen, values, kept)
        torch.testing.assert_close(fused.masses, plain.masses, rtol=0, atol=0)
        torch.testing.assert_close(fused.totals, plain.totals, rtol=1e-14, atol=0)
        uniforms, size = random(3, 40), torch.tensor(live, device=DEVICE)
        expected, found = (tree.draw(uniforms, floor, size) for tree in (plain, fused))
        assert torch.equal(expected[0], found[0])
        torch.testing.assert_close(found[1], expected[1], rtol=1e-13, atol=0)


@pytest.mark.parametrize(("has_weight", "has_bias"), [(True, True), (True, False), (False, True)])
def test_norms_of_a_layer(has_weight, has_bias) -> None:
    from aes_rl.engines import triton_kernels

    generator = torch.Generator().manual_seed(0)
    inputs, gradient = (torch.randn(3, 9, size, generator=generator).to(DEVICE) for size in (23, 33))
    found = triton_kernels.linear_norms(inputs, gradient, has_weight, has_bias)
    expected = gradient.square().sum(-1) * (has_weight * inputs.square().sum(-1) + has_bias)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("has_relu", [False, True])
def test_bias_of_a_layer(has_relu) -> None:
    from aes_rl.engines import triton_kernels

    generator = torch.Generator().manual_seed(0)
    output, bias = (torch.randn(3, size, 33, generator=generator).to(DEVICE) for size in (9, 1))
    expected = torch.relu(output + bias) if has_relu else output + bias
    triton_kernels.add_bias_(output, bias, has_relu)
    assert torch.equal(output, expected)
