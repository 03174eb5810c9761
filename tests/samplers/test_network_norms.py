"""The balanced signal against a loop over samples that follows its definition."""

import pytest
import torch

from aes_rl import Adaptive, Predictive, Signals
from aes_rl.errors import UserError
from aes_rl.samplers.sampler import Sampler
from aes_rl.types import as_tensor

SLOTS, BATCH, KEEP = 12, 5, 1 - 1 / 1000


def naive(sums, draw, norms, is_current):
    """Σ_k d_k / mean_k for one member; `sums` holds [Σ weight, Σ weight · d_1, …] and is changed."""
    for number in range(len(sums)):
        sums[number] *= KEEP
    for position, probability in enumerate(draw.probabilities[0].tolist()):
        if not is_current[position]:
            continue
        weight = 1 / (SLOTS * probability)
        sums[0] += weight
        for number, norm in enumerate(norms, start=1):
            sums[number] += weight * norm[position]
    return [sum(norm[i] / (sums[k] / sums[0]) for k, norm in enumerate(norms, start=1)) for i in range(len(norms[0]))]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_every_network_is_divided_by_its_weighted_mean(backend) -> None:
    """Networks whose norms differ by six orders of magnitude; some slots are overwritten between draw and report."""
    sampler = Sampler([Predictive(networks="balanced")], capacity=SLOTS, backend=backend)
    rule = sampler.rules[0]
    seen = []
    original = rule.forecast.observe
    rule.forecast.observe = lambda report, norms: (
        seen.append((report, as_tensor(norms).clone())),
        original(report, norms),
    )[1]
    generator = torch.Generator().manual_seed(0)

    def uniforms(count):
        return sampler.backend.view(torch.rand(1, count, generator=generator, dtype=torch.float64))

    for _ in range(2):
        sampler.place(uniforms(SLOTS))
    sums = [0.0, 0.0, 0.0]
    for number in range(20):
        draw = sampler.draw(uniforms(BATCH))
        if number % 3 == 0:
            sampler.place(uniforms(8))
        actor, critic = (scale * torch.rand(1, BATCH, generator=generator) for scale in (1e-3, 1e3))
        sampler.feedback(draw, Signals(None, {"actor": actor, "critic": critic}))
        report, found = seen[-1]
        is_current = report.is_current[0].tolist()
        expected = naive(sums, draw, [critic[0].tolist(), actor[0].tolist()], is_current)
        for position, value in enumerate(expected):
            if is_current[position]:
                assert found[0, position].item() == pytest.approx(value, rel=1e-6)
    assert not all(report.is_current.all() for report, _ in seen), "nothing was overwritten"
    assert torch.allclose(rule.state_dict()["network_sums"][0, :3], torch.tensor(sums, dtype=torch.float64))


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ((1,), "must be a text"),
        (("",), "must be a text"),
        (("actor", "actor"), "give each name once"),
        (("a", 1), "text"),
    ],
)
def test_unusable_names_of_networks(networks, message) -> None:
    with pytest.raises(UserError, match=message):
        Predictive(networks=networks)


def test_norms_under_an_empty_name_are_norms() -> None:
    """They are not taken for TD errors, which may be negative."""
    sampler = Sampler([Adaptive()], capacity=4)
    sampler.place(sampler.backend.view(torch.rand(1, 6, dtype=torch.float64)))
    draw = sampler.draw(sampler.backend.view(torch.rand(1, 4, dtype=torch.float64)))
    with pytest.raises(UserError, match=r"gradient_norm\[''\] of member 0 is -1.0 at position 0"):
        sampler.feedback(draw, Signals(torch.ones(1, 4), {"": -torch.ones(1, 4)}))
    sampler.feedback(draw, Signals(None, {"": torch.ones(1, 4)}))
