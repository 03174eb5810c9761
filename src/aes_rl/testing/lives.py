"""The lives that checks start from, what they are told, and how two of them are compared."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from aes_rl.samplers.registry import rule_for
from aes_rl.testing.history import Case, Life, Memory
from aes_rl.types import Array, Draw, Signal, Signals

SHORT = 10
"""Most updates that an option in `updates_options` counts in the checks of what `advance` does."""
_RARE = 1000
"""Updates within which those checks find what `advance` does without an option that says when."""
_TOTAL_UPDATES = 10_000
"""Said to the rules, for their schedules; longer than any life here."""


def stages(case: Case) -> list[Life]:
    """Lives at size one, half full, just full, and long after the wrap-around."""
    return [
        _life(case, count, case.seeds()) for count in sorted({1, (case.capacity + 1) // 2, case.capacity, beyond(case)})
    ]


def grown(case: Case, seeds: Sequence[int] | None = None) -> Life:
    """A life long after the wrap-around."""
    return _life(case, beyond(case), case.seeds() if seeds is None else tuple(seeds))


def young(case: Case) -> Life:
    """A life of a few updates, before or after the wrap-around."""
    return _life(case, 2 * SHORT, case.seeds())


def shortened(case: Case) -> Case:
    """The case with every option that counts updates at most ten, so that what they say happens in every check."""
    names = rule_for(case.config).updates_options
    options = {name: min(getattr(case.config, name) or SHORT, SHORT) for name in names}
    return replace(case, config=replace(case.config, **options))


def _life(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    life = new(case, seeds)
    life.load(_lived(case, insertions, seeds, rule_for(case.config)))
    return life


@lru_cache(maxsize=8)
def _lived(case: Case, insertions: int, seeds: tuple[int, ...], _rule: type[Any]) -> Memory:
    """How a life stands after some insertions; many checks start from here. A rule written anew lives anew."""
    return live(case, insertions, seeds).save()


def live(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    """Some insertions, the last forty with an update each."""
    life = new(case, seeds)
    life.insert(max(0, insertions - 40))
    life.live(min(insertions, 40))
    return life


def new(case: Case, seeds: tuple[int, ...] | None = None) -> Life:
    """A life that has yet to begin."""
    return Life(case, seeds, _TOTAL_UPDATES)


def both_written(life: Life) -> tuple[torch.Tensor, torch.Tensor]:
    """The slots of two insertions, [P, 1] each."""
    first = torch.as_tensor(life.insert()).clone()
    return first, torch.as_tensor(life.insert()).clone()


def tell(life: Life, slots: torch.Tensor, values: Sequence[float]) -> None:
    """An update that reports these values of these slots [P, B], the same for every member."""
    reported = torch.tensor([values]).repeat(len(slots), 1)
    life.sampler.feedback(draw_of(slots, life), report(reported))
    if Signal.EVERY_GRADIENT_NORM in life.sampler.needs:
        life.sampler.observe_all(torch.ones(len(slots), len(life.sampler)).scatter(1, slots, reported))
    life.advance()


def go_on_alike(one: Life, other: Life, what: str) -> None:
    """Raise unless the two stand alike now and after every update of the next thousand, which report nothing."""
    assert_alike(one, other, what)
    for _ in range(_RARE):
        one.advance()
        other.advance()
        assert_alike(one, other, what)


def part_ways(one: Life, other: Life) -> bool:
    """Whether the two differ now or after one of the next thousand updates, which report nothing."""
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
    """How many insertions end long after the wrap-around."""
    return case.capacity + min(case.capacity, 100) + 3


def report(values: torch.Tensor) -> Signals:
    """These values as a report to any rule."""
    return Signals(td_error=values, gradient_norm={"actor": values, "critic": 2 * values})


def draw_of(slots: torch.Tensor, life: Life, like: Draw | None = None) -> Draw:
    """A draw of given slots, with the probabilities they have now or had in another draw of the same slot."""
    model = life.draw(1)
    probabilities = like.probabilities[:, :1] if like else life.sampler.probabilities().gather(1, slots)
    probabilities = probabilities[:, : slots.shape[1]].contiguous()
    return Draw(view(slots, life), view(probabilities, life), model.size, model.clock)


def view(values: torch.Tensor, life: Life) -> Array:
    """A tensor in the form that the life's backend takes."""
    return life.sampler.backend.view(values)
