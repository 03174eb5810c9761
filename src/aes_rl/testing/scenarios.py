"""Simulated runs that the checks start from, reports to them, and comparisons of two of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from aes_rl.samplers.registry import rule_for
from aes_rl.samplers.rule import AbstractRule
from aes_rl.testing.simulated_run import Case, SavedState, SimulatedRun
from aes_rl.types import Array, Draw, Signal, Signals, as_tensor

SHORT = 10
"""Maximum value of the options in `updates_options` in the checks of `advance`."""
_RARE = 1000
"""Longest period, in updates, at which those checks detect work of `advance` that has no such option."""
_TOTAL_UPDATES = 10_000
"""Length of the run for schedules; longer than any run here."""


def stages(case: Case) -> list[SimulatedRun]:
    """Runs with one slot written, half full, just full, and long after the wrap-around."""
    return [
        _run_after(case, count, case.seeds())
        for count in sorted({1, (case.capacity + 1) // 2, case.capacity, insertions_after_wrap(case)})
    ]


def wrapped(case: Case, seeds: Sequence[int] | None = None) -> SimulatedRun:
    """A run long after the wrap-around."""
    return _run_after(case, insertions_after_wrap(case), case.seeds() if seeds is None else tuple(seeds))


def early(case: Case) -> SimulatedRun:
    """A run of a few updates, before or after the wrap-around."""
    return _run_after(case, 2 * SHORT, case.seeds())


def shortened(case: Case) -> Case:
    """The case with every option in `updates_options` at most 10, so that all periodic work runs in every check."""
    names = rule_for(case.config).updates_options
    options = {name: min(getattr(case.config, name) or SHORT, SHORT) for name in names}
    return replace(case, config=replace(case.config, **options))


def _run_after(case: Case, insertions: int, seeds: tuple[int, ...]) -> SimulatedRun:
    run = new_run(case, seeds)
    run.load(_state_after(case, insertions, seeds, rule_for(case.config)))
    return run


@lru_cache(maxsize=8)
def _state_after(case: Case, insertions: int, seeds: tuple[int, ...], _rule: type[AbstractRule]) -> SavedState:
    """The state after a number of insertions, cached because many checks start from it. `_rule` is part of the key."""
    return simulate(case, insertions, seeds).save()


def simulate(case: Case, insertions: int, seeds: tuple[int, ...]) -> SimulatedRun:
    """A run with a number of insertions, the last 40 of them followed by one update each."""
    run = new_run(case, seeds)
    for _ in range(insertions - 40):
        run.insert()
    run.train(min(insertions, 40))
    return run


def new_run(case: Case, seeds: tuple[int, ...] | None = None) -> SimulatedRun:
    """A run with an empty buffer."""
    return SimulatedRun(case, seeds, _TOTAL_UPDATES)


def insert_two(run: SimulatedRun) -> tuple[torch.Tensor, torch.Tensor]:
    """Insert two transitions; return their slots, [P, 1] each."""
    first = as_tensor(run.insert()).clone()
    return first, as_tensor(run.insert()).clone()


def report_values(run: SimulatedRun, slots: torch.Tensor, values: Sequence[float]) -> None:
    """Do an update that reports these values for these slots [P, B], the same for every member."""
    reported = torch.tensor([values]).repeat(len(slots), 1)
    run.sampler.feedback(draw_of(slots, run), signals_of(reported))
    if Signal.EVERY_GRADIENT_NORM in run.sampler.needs:
        run.sampler.observe_all(torch.ones(len(slots), len(run.sampler)).scatter(1, slots, reported))
    run.advance()


def assert_stay_equal(one: SimulatedRun, other: SimulatedRun, what: str) -> None:
    """Raise unless both have the same probabilities now and after each of the next 1,000 updates without feedback."""
    assert_equal(one, other, what)
    for _ in range(_RARE):
        one.advance()
        other.advance()
        assert_equal(one, other, what)


def differ_later(one: SimulatedRun, other: SimulatedRun) -> bool:
    """Whether the probabilities differ now or after any of the next 1,000 updates without feedback."""
    for _ in range(_RARE):
        if not torch.allclose(one.sampler.probabilities(), other.sampler.probabilities()):
            return True
        one.advance()
        other.advance()
    return False


def assert_equal(one: SimulatedRun, other: SimulatedRun, what: str) -> None:
    """Raise unless every live slot has the same probability in both."""
    size = len(one.sampler)
    masses, others = (run.sampler.distribution.tree.masses[:, :size] for run in (one, other))
    if torch.equal(masses, others):
        return
    found, expected = one.sampler.probabilities(), other.sampler.probabilities()
    is_off = ~torch.isclose(found, expected, rtol=1e-9, atol=0)
    if bool(is_off.any()):
        member, slot = is_off.nonzero()[0].tolist()
        pair = f"{float(found[member, slot])} and {float(expected[member, slot])}"
        raise AssertionError(f"{what} (update {one.updates}, member {member}: slot {slot} has probabilities {pair})")


def insertions_after_wrap(case: Case) -> int:
    """A number of insertions that ends long after the wrap-around."""
    return case.capacity + min(case.capacity, 100) + 3


def signals_of(values: torch.Tensor) -> Signals:
    """Signals with these values, for every kind of rule."""
    return Signals(td_error=values, gradient_norm={"actor": values, "critic": 2 * values})


def draw_of(slots: torch.Tensor, run: SimulatedRun, like: Draw | None = None) -> Draw:
    """A draw of given slots, with their current probabilities or with those of the draw `like`."""
    model = run.draw(1)
    probabilities = like.probabilities[:, :1] if like else run.sampler.probabilities().gather(1, slots)
    probabilities = probabilities[:, : slots.shape[1]].contiguous()
    return Draw(view(slots, run), view(probabilities, run), model.size, model.clock)


def view(values: torch.Tensor, run: SimulatedRun) -> Array:
    """A tensor in the array type of the sampler's backend."""
    return run.sampler.backend.view(values)
