"""The Triton kernels against their twins: on a GPU, or on the CPU where Triton interprets (TRITON_INTERPRET=1)."""

import os

import pytest
import torch

from aes_rl import Adaptive, Predictive, Prioritized, Replay, Signals, Transition, Uniform, backends
from aes_rl.streams import Stream, Streams

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # torch.compile has some of its own
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU or TRITON_INTERPRET=1"
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's integers overflow as they should
]


@pytest.mark.parametrize("counter", [0, 5, 123_456_789])
def test_uniform_numbers_are_the_same_bits(counter) -> None:
    seeds = [1, 2**63 + 5, 77]
    plain, fused = (Streams(seeds, backends.choose(name, DEVICE)) for name in ("torch", "triton"))
    clock = torch.tensor(counter, device=DEVICE)
    expected, found = (streams.uniform(Stream.DRAW, clock, 300) for streams in (plain, fused))
    assert torch.equal(expected, found)


@pytest.mark.parametrize("capacity", [1, 100, 128, 5000, 20_000])
def test_trees_write_and_draw_the_same(capacity) -> None:
    from aes_rl.backends.torch.tree import BlockTree
    from aes_rl.backends.triton.tree import TritonTree

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


@pytest.mark.parametrize("overwrite", ["adaptive", "uniform", "fifo"])
def test_replays_live_the_same_life(overwrite) -> None:
    """Placing, reading, weights, feedback and forgetting of a mixed population, from empty to overwritten."""
    configs = [
        Uniform(overwrite),
        Prioritized(overwrite=overwrite),
        Adaptive(overwrite=overwrite, forget_every=7),
        Adaptive(overwrite=overwrite, forget_every=7, nu="auto"),
        Predictive(overwrite=overwrite, refresh_every=5),
    ]
    replays = [
        Replay(
            configs, capacity=40, observation_size=3, action_size=2, seeds=range(5), total_updates=400, device=DEVICE,
            backend=backend,
        )
        for backend in ("torch", "triton")
    ]  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for update in range(1, 70):
        shapes = [(5, 3), (5, 2), (5,), (5, 3), (5,)]
        transition = Transition(*(torch.rand(shape, generator=generator).to(DEVICE) for shape in shapes))
        samples = []
        for replay in replays:
            replay.add(transition)
            sample = replay.sample(9)
            norms = sample.batch.reward.square()
            replay.feedback(sample.draw, Signals(sample.batch.reward, {"actor": norms, "critic": 100 * norms}))
            replay.advance(update)
            samples.append(sample)
        plain, fused = samples
        assert torch.equal(fused.draw.slots, plain.draw.slots)
        assert torch.equal(fused.batch.rows, plain.batch.rows)
        torch.testing.assert_close(fused.weights, plain.weights)
    plain, fused = (replay.state_dict() for replay in replays)
    for name, value in plain.items():
        torch.testing.assert_close(fused[name], value, rtol=1e-12, atol=1e-12)
    for replay in replays:
        replay.check()


@pytest.mark.parametrize("sizes", [[5, 40, 33, 2], [17, 70, 1], [5, 2]])
@pytest.mark.parametrize(("late_size", "late_layer"), [(0, 1), (3, 0), (3, 1)])
@pytest.mark.parametrize(("share", "norm_members"), [(1, slice(None)), (2, slice(None)), (2, slice(1, 2))])
def test_a_fused_pass_is_the_plain_one(sizes, late_size, late_layer, share, norm_members) -> None:
    compare_passes(sizes, late_size, min(late_layer, len(sizes) - 2), share, norm_members, 70, 1e-4)


@pytest.mark.parametrize("batch", [70, 256, 300])
def test_a_fused_pass_with_tf32_is_nearly_the_plain_one(batch) -> None:
    """Wide layers, of which a tile covers a part; batches from 256 have tiles of their own."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        compare_passes([17, 300, 260, 3], 3, 1, 2, slice(None), batch, 5e-3)
    finally:
        torch.set_float32_matmul_precision(precision)


def compare_passes(sizes, late_size, late_layer, share, norm_members, batch, tolerance) -> None:
    """Outputs, gradients of inputs and parameters, norms; inputs are views, as a batch's are."""
    from aes_rl.gradients import perceptron

    generator = torch.Generator().manual_seed(0)
    members = 2
    network = perceptron.Perceptron(members * share, sizes, late_size, late_layer).to(DEVICE)
    rows = torch.randn(members, batch, sizes[0] + late_size + 1, generator=generator).to(DEVICE)
    weights = torch.randn(members * share, batch, sizes[-1], generator=generator).to(DEVICE)
    results = []
    for kind in (perceptron._Pass, perceptron._FusedPass):
        for parameter in network.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)
        inputs = rows[..., : sizes[0]].detach().requires_grad_()
        late = rows[..., sizes[0] : sizes[0] + late_size].detach().requires_grad_() if late_size else None
        tap = torch.zeros(members * share, batch, device=DEVICE, requires_grad=True)
        output = kind.apply(inputs, late, tap, network, norm_members)
        wanted = [part for part in (inputs, late, tap) if part is not None]
        gradients = torch.autograd.grad((output * weights).sum(), wanted)
        results.append([output.detach(), *gradients, *(parameter.grad.clone() for parameter in network.parameters())])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=tolerance, atol=tolerance / 10 * float(plain.abs().max()))


@pytest.mark.parametrize(("has_target", "weight_decay"), [(False, 0.1), (True, 0.0)])
def test_adam_is_torchs(has_target, weight_decay, monkeypatch) -> None:
    from aes_rl.agents.learner import Adam
    from aes_rl.backends.triton import networks as triton_networks

    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3000, generator=generator).to(DEVICE)
    plain, fused = start.clone(), start.clone()
    targets = [torch.zeros_like(start) for _ in range(2)]
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    exact = torch.zeros_like(start).double()
    monkeypatch.setattr("aes_rl.agents.learner.has_kernels", lambda _: False)
    optimiser = Adam([plain], 1e-2, weight_decay, {0: targets[0]} if has_target else {}, 0.3)
    for step in range(1, 6):
        plain.grad = fused.grad = torch.randn(3000, generator=generator).to(DEVICE)
        exact = 0.999 * exact + 0.001 * (plain.grad.double() + weight_decay * fused.double()).square()
        optimiser.step()
        steps = torch.tensor(float(step), device=DEVICE)
        triton_networks.adam_(fused, mean, square, steps, 1e-2, weight_decay, targets[1] if has_target else None, 0.3)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(targets[1], targets[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mean, optimiser.state_dict()["mean.0"], rtol=1e-5, atol=1e-6)
    # Against the numbers themselves: on a GPU torch's own kernel has 1 − 0.999 wrong by 1.3e-5.
    torch.testing.assert_close(square.double(), exact, rtol=1e-5, atol=1e-8)
