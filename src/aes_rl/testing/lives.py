"""Histories that the checks start from, reports to them, and comparisons of two of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from aes_rl.samplers.registry import rule_for
from aes_rl.testing.history import Case, Life, Memory
from aes_rl.types import Array, Draw, Signal, Signals

SHORT = 10
"""Maximum value of the options in `updates_options` in the checks of `advance`."""
_RARE = 1000
"""Longest period, in updates, at which those checks detect work of `advance` that has no such option."""
_TOTAL_UPDATES = 10_000
"""Length of the run for schedules; longer than any history here."""


def stages(case: Case) -> list[Life]:
    """Histories with one slot written, half full, just full, and long after the wrap-around."""
    return [
        _life(case, count, case.seeds()) for count in sorted({1, (case.capacity + 1) // 2, case.capacity, beyond(case)})
    ]


def grown(case: Case, seeds: Sequence[int] | None = None) -> Life:
    """A history long after the wrap-around."""
    return _life(case, beyond(case), case.seeds() if seeds is None else tuple(seeds))


def young(case: Case) -> Life:
    """A history of a few updates, before or after the wrap-around."""
    return _life(case, 2 * SHORT, case.seeds())


def shortened(case: Case) -> Case:
    """The case with every option in `updates_options` at most 10, so that all periodic work runs in every check."""
    names = rule_for(case.config).updates_options
    options = {name: min(getattr(case.config, name) or SHORT, SHORT) for name in names}
    return replace(case, config=replace(case.config, **options))


def _life(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    life = new(case, seeds)
    life.load(_lived(case, insertions, seeds, rule_for(case.config)))
    return life


@lru_cache(maxsize=8)
def _lived(case: Case, insertions: int, seeds: tuple[int, ...], _rule: type[Any]) -> Memory:
    """The state after a number of insertions, cached because many checks start from it. `_rule` is part of the key."""
    return live(case, insertions, seeds).save()


def live(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    """A history with a number of insertions, the last 40 of them followed by one update each."""
    life = new(case, seeds)
    life.insert(max(0, insertions - 40))
    life.live(min(insertions, 40))
    return life


def new(case: Case, seeds: tuple[int, ...] | None = None) -> Life:
    """An empty history."""
    return Life(case, seeds, _TOTAL_UPDATES)


def both_written(life: Life) -> tuple[torch.Tensor, torch.Tensor]:
    """Insert two transitions; return their slots, [P, 1] each."""
    first = torch.as_tensor(life.insert()).clone()
    return first, torch.as_tensor(life.insert()).clone()


def tell(life: Life, slots: torch.Tensor, values: Sequence[float]) -> None:
    """Do an update that reports these values for these slots [P, B], the same for every member."""
    reported = torch.tensor([values]).repeat(len(slots), 1)
    life.sampler.feedback(draw_of(slots, life), report(reported))
    if Signal.EVERY_GRADIENT_NORM in life.sampler.needs:
        life.sampler.observe_all(torch.ones(len(slots), len(life.sampler)).scatter(1, slots, reported))
    life.advance()


def go_on_alike(one: Life, other: Life, what: str) -> None:
    """Raise unless both have the same probabilities now and after each of the next 1,000 updates without feedback."""
    assert_alike(one, other, what)
    for _ in range(_RARE):
        one.advance()
        other.advance()
        assert_alike(one, other, what)


def part_ways(one: Life, other: Life) -> bool:
    """Whether the probabilities differ now or after any of the next 1,000 updates without feedback."""
    for _ in range(_RARE):
        if not torch.allclose(one.sampler.probabilities(), other.sampler.probabilities()):
            return True
        one.advance()
        other.advance()
    return False


def assert_alike(one: Life, other: Life, what: str) -> None:
    """Raise unless every live slot has the same probability in both."""
    size = len(one.sampler)
    masses, others = (life.sampler.distribution.tree.masses[:, :size] for life in (one, other))
    if torch.equal(masses, others):
        return
    found, expected = one.sampler.probabilities(), other.sampler.probabilities()
    is_off = ~torch.isclose(found, expected, rtol=1e-9, atol=0)
    if bool(is_off.any()):
        member, slot = is_off.nonzero()[0].tolist()
        pair = f"{float(found[member, slot])} and {float(expected[member, slot])}"
        raise AssertionError(f"{what} (update {one.updates}, member {member}: slot {slot} has probabilities {pair})")


def beyond(case: Case) -> int:
    """A number of insertions that ends long after the wrap-around."""
    return case.capacity + min(case.capacity, 100) + 3


def report(values: torch.Tensor) -> Signals:
    """Signals with these values, for every kind of rule."""
    return Signals(td_error=values, gradient_norm={"actor": values, "critic": 2 * values})


def draw_of(slots: torch.Tensor, life: Life, like: Draw | None = None) -> Draw:
    """A draw of given slots, with their current probabilities or with those of the draw `like`."""
    model = life.draw(1)
    probabilities = like.probabilities[:, :1] if like else life.sampler.probabilities().gather(1, slots)
    probabilities = probabilities[:, : slots.shape[1]].contiguous()
    return Draw(view(slots, life), view(probabilities, life), model.size, model.clock)


def view(values: torch.Tensor, life: Life) -> Array:
    """A tensor in the array type of the sampler's backend."""
    return life.sampler.backend.view(values)
