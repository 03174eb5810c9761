"""What every sampler must do, as functions of a case. Each raises AssertionError with the numbers that are wrong."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from aes_rl.engines import choose
from aes_rl.samplers.registry import rule_for
from aes_rl.testing.history import Case, Life, Memory
from aes_rl.testing.statistics import FALSE_ALARM, frequency_p_value, mean_p_value
from aes_rl.types import Draw, EngineName, Signals
from aes_rl.weighting import unbiased

Check = Callable[[Case], None]
_DRAWS = 10_000


def probabilities_are_a_distribution(case: Case) -> None:
    """Positive on every live slot and summing to one, from the first insertion to beyond the wrap-around."""
    for life in _stages(case):
        probabilities = life.sampler.probabilities()
        assert probabilities.shape == (case.members, len(life.sampler))
        assert bool((probabilities > 0).all()), f"a live slot has no chance: {probabilities.min()}"
        assert torch.allclose(probabilities.sum(1), torch.ones(case.members, dtype=torch.float64), atol=1e-12, rtol=0)


def draws_stay_among_live_slots(case: Case) -> None:
    """Never an empty slot, and each draw carries the probability its slot has."""
    for life in _stages(case):
        draw = life.draw(512)
        slots = draw.slots
        assert int(slots.min()) >= 0
        assert int(slots.max()) < len(life.sampler), f"slot {int(slots.max())} of {len(life.sampler)} live ones"
        expected = life.sampler.probabilities().gather(1, slots)
        assert torch.allclose(draw.probabilities, expected, rtol=1e-9, atol=0)


def frequencies_follow_probabilities(case: Case) -> None:
    """χ² of the observed slots against the reported probabilities, for every member."""
    for life in _stages(case):
        probabilities = life.sampler.probabilities()
        slots = life.draw(_DRAWS).slots
        for member in range(case.members):
            chance = frequency_p_value(slots[member], probabilities[member])
            assert chance > FALSE_ALARM, f"member {member}: frequencies this far off have a chance of {chance}"


def weighted_mean_is_unbiased(case: Case) -> None:
    """The mean of an arbitrary function over draws, weighted by 1/(n·p), is the uniform mean.

    A rule that says so of itself must give exactly these weights; any rule's are positive.
    """
    engine = choose(case.engine, "cpu")
    for life in _stages(case):
        size = len(life.sampler)
        values = torch.sin(torch.arange(size, dtype=torch.float64) * 7 + 1) * torch.arange(1, size + 1)
        draw = life.draw(_DRAWS)
        weights = unbiased(draw, engine, torch.float64)
        own = life.sampler.weights(draw).double()
        assert bool((own > 0).all())
        if rule_for(case.config).is_unbiased:
            assert torch.allclose(own, weights, rtol=1e-6), "the weights are not 1/(n·p)"
        weighted = values[draw.slots] * weights
        for member in range(case.members):
            chance = mean_p_value(weighted[member], float(values.mean()))
            assert chance > FALSE_ALARM, f"member {member}: a mean this far off has a chance of {chance}"


def overwriting_forgets(case: Case) -> None:
    """A slot just written starts like any other, whatever its old content was worth."""
    life = _grown(case)
    first, second = _both_written(life)
    _stand_alike(life, first, second, "new slots start at masses")
    _tell_the_same(life, first, second)
    _stand_alike(life, first, second, "`fresh` forgot too little: new slots told the same are at masses")


def late_feedback_is_dropped(case: Case) -> None:
    """Feedback for a slot overwritten since the draw changes nothing about its new content, then or later."""
    first, second = _both_written(_grown(case))  # where the next two go, for whoever wants to draw them before
    life = _grown(case)
    draw, alone = life.draw(8 * case.capacity), _draw_of(first, life)
    _both_written(life)
    before = life.sampler.distribution.tree.masses.clone()
    life.sampler.feedback(draw, life.signals(draw.slots.shape[1]))
    after = life.sampler.distribution.tree.masses
    for member in range(case.members):
        slot = int(first[member, 0])
        assert after[member, slot] == before[member, slot], f"member {member}: slot {slot} learned from old content"
    life.sampler.feedback(alone, _report(torch.full(first.shape, 7.0)))
    _tell_the_same(life, first, second)
    what = "a report on old content, which reaches a rule as 0, was learned from: new slots told the same are at masses"
    _stand_alike(life, first, second, what)


def repeated_slots_count_in_order(case: Case) -> None:
    """A slot drawn twice in one batch ends as if its two reports had come one after the other.

    Where a batch counts as one, it ends the same wherever in the batch the other slots are reported.
    """
    together, apart = _grown(case), _grown(case)
    slots = torch.zeros(case.members, 3, dtype=torch.int64)
    errors = torch.tensor([[5.0, 700.0, 40.0]]).expand(case.members, 3).contiguous()
    if rule_for(case.config).is_sequential:
        draw = _draw_of(slots, together)
        together.sampler.feedback(draw, _report(errors))
        for position in range(3):
            one = errors[:, position : position + 1].contiguous()
            single = _draw_of(slots[:, :1].contiguous(), together, draw)
            apart.sampler.feedback(single, _report(one))
    else:
        slots[:, 1] = case.capacity - 1
        order = [1, 0, 2] if case.capacity > 1 else [0, 1, 2]
        draw = _draw_of(slots, together)
        shuffled = _draw_of(slots[:, order].contiguous(), apart)
        together.sampler.feedback(draw, _report(errors))
        apart.sampler.feedback(shuffled, _report(errors[:, order].contiguous()))
        assert not torch.allclose(together.sampler.probabilities(), _grown(case).sampler.probabilities()) or (
            case.capacity == 1
        ), "feedback changed nothing"
    found, expected = together.sampler.probabilities(), apart.sampler.probabilities()
    assert torch.allclose(found, expected, rtol=1e-9, atol=0), (
        f"slot 0 has probability {found[:, 0]} after one batch and {expected[:, 0]} after the same reports in turn; "
        "if a batch is to count as one, set is_sequential = False"
    )


def same_counters_give_same_draws(case: Case) -> None:
    """Two samplers with the same seeds and history draw the same slots."""
    one, other = _grown(case), _grown(case)
    for _ in range(20):
        assert torch.equal(one.update().slots, other.update().slots)


def saved_state_continues(case: Case) -> None:
    """After saving, loading into a new sampler and going on, the next 100 draws are the same."""
    life, restored = _live(case, _beyond(case), case.seeds()), Life(case)
    restored.load(life.save())
    for number in range(100):
        life.insert()
        restored.insert()
        one, other = life.update(), restored.update()
        is_same = torch.equal(one.slots, other.slots) and torch.equal(one.probabilities, other.probabilities)
        assert is_same, f"draw {number + 1} after loading is another: state_dict() lacks something that changes"


def members_are_independent(case: Case) -> None:
    """A member draws the same alone and among others."""
    together = _grown(case)
    alone = [_grown(case, seeds=[seed]) for seed in case.seeds()]
    for _ in range(20):
        draw = together.update()
        for member, life in enumerate(alone):
            own = life.update()
            assert torch.equal(own.slots[0], draw.slots[member])
            assert torch.allclose(own.probabilities[0], draw.probabilities[member], rtol=1e-12, atol=0)


CHECKS: tuple[Check, ...] = (
    probabilities_are_a_distribution,
    draws_stay_among_live_slots,
    frequencies_follow_probabilities,
    weighted_mean_is_unbiased,
    overwriting_forgets,
    late_feedback_is_dropped,
    repeated_slots_count_in_order,
    same_counters_give_same_draws,
    saved_state_continues,
    members_are_independent,
)


def check_sampler(
    config: Any,
    *,
    members: Sequence[int] = (1, 3),
    capacities: Sequence[int] = (1, 7, 64, 1000),
    engines: Sequence[EngineName] = ("numba", "torch"),
) -> None:
    """Run the whole battery on a sampler, given by its configuration; raises AssertionError on the first failure.

    The configuration's rule must be registered in `aes_rl.samplers.registry.RULES`. Statistical checks have a
    false-alarm rate of one in a million each, and fixed seeds, so a sampler that passes keeps passing.
    """
    for engine in engines:
        for count in members:
            for capacity in capacities:
                for check in CHECKS:
                    check(Case(config, count, capacity, engine))


def _stages(case: Case) -> list[Life]:
    """Lives at size one, half full, just full, and long after the wrap-around."""
    return [
        _life(case, count, case.seeds())
        for count in sorted({1, (case.capacity + 1) // 2, case.capacity, _beyond(case)})
    ]


def _grown(case: Case, seeds: Sequence[int] | None = None) -> Life:
    """A life long after the wrap-around."""
    return _life(case, _beyond(case), case.seeds() if seeds is None else tuple(seeds))


def _life(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    life = Life(case, seeds)
    life.load(_lived(case, insertions, seeds, rule_for(case.config)))
    return life


@lru_cache(maxsize=8)
def _lived(case: Case, insertions: int, seeds: tuple[int, ...], _rule: type[Any]) -> Memory:
    """How a life stands after some insertions; many checks start from here. A rule written anew lives anew."""
    return _live(case, insertions, seeds).save()


def _live(case: Case, insertions: int, seeds: tuple[int, ...]) -> Life:
    """Some insertions, the last forty with an update each."""
    life = Life(case, seeds)
    life.insert(max(0, insertions - 40))
    life.live(min(insertions, 40))
    return life


def _both_written(life: Life) -> tuple[torch.Tensor, torch.Tensor]:
    """The slots of two insertions, [P, 1] each."""
    first = torch.as_tensor(life.insert()).clone()
    return first, torch.as_tensor(life.insert()).clone()


def _tell_the_same(life: Life, first: torch.Tensor, second: torch.Tensor) -> None:
    """Report twice, in two batches, the same of both slots."""
    for value in (3.0, 50.0):
        draw = _draw_of(torch.cat([first, second], dim=1), life)
        life.sampler.feedback(draw, _report(torch.full(first.shape, value).expand(-1, 2).contiguous()))


def _stand_alike(life: Life, first: torch.Tensor, second: torch.Tensor, what: str) -> None:
    masses = life.sampler.distribution.tree.masses
    for member in range(len(first)):
        one, other = float(masses[member, first[member, 0]]), float(masses[member, second[member, 0]])
        assert math.isclose(one, other, rel_tol=1e-12), f"member {member}: {what} {one} and {other}"


def _beyond(case: Case) -> int:
    return case.capacity + min(case.capacity, 100) + 3


def _report(values: torch.Tensor) -> Signals:
    return Signals(td_error=values, gradient_norm={"actor": values, "critic": 2 * values})


def _draw_of(slots: torch.Tensor, life: Life, like: Draw | None = None) -> Draw:
    """A draw of given slots, with the probabilities they have now or had in another draw of the same slot."""
    model = life.draw(1)
    probabilities = like.probabilities[:, :1] if like else life.sampler.probabilities().gather(1, slots)
    probabilities = probabilities[:, : slots.shape[1]].contiguous()
    if life.sampler.engine.name == "numba":
        return Draw(slots.numpy(), probabilities.numpy(), model.size, model.clock)
    return Draw(slots, probabilities, model.size, model.clock)
