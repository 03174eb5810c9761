"""Slices of one population with different rules behave as the same samplers do alone."""

import pytest
import torch

from aes_rl import Adaptive, FullInformation, Naive, Prioritized, Replay, Signal, Signals, Transition, Uniform

CONFIGS = [Uniform(), Prioritized(), Prioritized(), Adaptive(forget_every=4), Naive(updates_per_epoch=6), Uniform()]


def replay_of(configs, seeds, backend):
    return Replay(
        configs, capacity=30, observation_size=2, action_size=1, seeds=seeds, total_updates=100, backend=backend
    )


def life(replay, seeds):
    """Draws of a made-up training run whose numbers depend on each member's seed alone."""
    draws = []
    for step in range(60):
        generators = [torch.Generator().manual_seed(1000 * seed + step) for seed in seeds]
        rows = torch.stack([torch.rand(7, generator=generator) for generator in generators])
        replay.add(Transition(rows[:, :2], rows[:, 2:3], rows[:, 3], rows[:, 4:6], rows[:, 6].round()))
        batch, draw, weights, _ = replay.sample(5)
        norms = batch.reward.square() * 1000
        replay.feedback(draw, Signals(td_error=batch.reward, gradient_norm={"critic": norms}))
        replay.advance(step + 1)
        draws.append((draw.slots, weights, batch.observation))
    return draws


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_mixed_population_is_its_members(backend) -> None:
    seeds = list(range(10, 10 + len(CONFIGS)))
    together = life(replay_of(CONFIGS, seeds, backend), seeds)
    for member, (config, seed) in enumerate(zip(CONFIGS, seeds, strict=True)):
        alone = life(replay_of([config], [seed], backend), [seed])
        for (slots, weights, observation), (own_slots, own_weights, own_observation) in zip(
            together, alone, strict=True
        ):
            assert torch.equal(slots[member], own_slots[0])
            assert torch.allclose(weights[member], own_weights[0], rtol=1e-6)
            assert torch.equal(observation[member], own_observation[0])


def test_engines_agree_over_a_whole_life() -> None:
    seeds = list(range(len(CONFIGS)))
    for one, other in zip(
        life(replay_of(CONFIGS, seeds, "numba"), seeds), life(replay_of(CONFIGS, seeds, "torch"), seeds), strict=True
    ):
        assert torch.equal(one[0], other[0])
        assert torch.allclose(one[1], other[1], rtol=1e-6)
        assert torch.equal(one[2], other[2])


def test_needs_are_the_union_of_the_members() -> None:
    replay = replay_of([Uniform(), Prioritized(), FullInformation()], [0, 1, 2], "numba")
    assert replay.sampler.needs == Signal.TD_ERROR | Signal.EVERY_GRADIENT_NORM


def test_weight_exponent_of_prioritized_replay_is_annealed() -> None:
    replay = replay_of([Prioritized()], [0], "numba")
    (part,) = replay.sampler._slices
    seen = []
    for update_step in (50, 100, 150):
        replay.advance(update_step)
        seen.append(part.rule.weight_exponent.item())
    assert seen == pytest.approx([0.7, 1.0, 1.0])


def test_weights_of_prioritized_replay_by_hand() -> None:
    """(n·p)^(−0.4) over its largest: three slots with masses 1, 1 and 8^0.6 after one report."""
    replay = replay_of([Prioritized()], [0], "numba")
    for step in range(3):
        row = torch.full((1, 2), float(step))
        replay.add(Transition(row, row[:, :1], row[:, 0], row, row[:, 0]))
    _, draw, *_ = replay.sample(64)
    replay.feedback(draw, Signals(td_error=torch.where(draw.slots == 2, -8.0, 1.0)))
    _, draw, weights, _ = replay.sample(64)
    masses = torch.tensor([(1 + 1e-6) ** 0.6, (1 + 1e-6) ** 0.6, (8 + 1e-6) ** 0.6], dtype=torch.float64)
    raw = (3 * masses / masses.sum()) ** -0.4
    assert len(set(draw.slots[0].tolist())) == 3
    assert torch.allclose(weights[0].double(), raw[draw.slots[0]] / raw.max(), rtol=1e-6)
