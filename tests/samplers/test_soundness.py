"""No mass that is not finite and positive enters a tree, whatever is reported and whatever a rule returns."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from aes_rl import Predictive, Signals
from aes_rl.errors import UserError
from aes_rl.samplers.registry import RULES
from aes_rl.samplers.sampler import Sampler
from aes_rl.samplers.uniform import UniformRule
from aes_rl.types import Signal

_REPORTED = Signal.TD_ERROR | Signal.GRADIENT_NORM


@dataclass(frozen=True)
class Broken:
    """A rule that gives masses which are not sound."""

    fresh: float = 1.0
    reported: float = 1.0
    advanced: float = 1.0


class BrokenRule(UniformRule):
    config_type: ClassVar = Broken
    needs = Signal.TD_ERROR

    def __init__(self, config, setting):
        self.config, self.setting = config, setting
        self.floor, self.overwrite = 0.1, "fifo"

    def fresh(self, slots):
        return torch.full(slots.shape, self.config.fresh, dtype=torch.float64)

    def feedback(self, report):
        masses = torch.ones(report.draw.slots.shape, dtype=torch.float64)
        masses[0, 1] = self.config.reported
        return masses

    def advance(self, update_step):
        del update_step
        masses = torch.full((self.setting.members, self.setting.capacity), 2.0, dtype=torch.float64)
        masses[:, 1] = self.config.advanced
        masses[:, 6:] = torch.nan  # nobody has written these slots
        return masses


class Misshapen(BrokenRule):
    def slot_state(self):
        return {"sums": torch.zeros(3)}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(RULES, "broken", BrokenRule)


def filled(config, backend, slots=6):
    sampler = Sampler([config], capacity=8, backend=backend)
    for _ in range(slots):
        place(sampler, backend)
    return sampler


def place(sampler, backend):
    sampler.place(view(np.full((1, 2), 0.5), backend))


def draw(sampler, backend):
    return sampler.draw(view(np.linspace(0.05, 0.95, 8).reshape(1, 8), backend))


def view(array, backend):
    return array if backend == "numba" else torch.from_numpy(array)


def require_sound(sampler):
    assert sampler.probabilities().isfinite().all()
    assert sampler.probabilities().sum().item() == pytest.approx(1)
    assert (sampler.distribution.tree.masses[:, : len(sampler)] > 0).all()


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("mass", [0.0, -1.0, torch.inf, torch.nan])
@pytest.mark.parametrize("where", ["fresh", "reported", "advanced"])
def test_an_unsound_mass_stays_outside(where, mass, backend) -> None:
    sampler = filled(Broken(**({} if where == "fresh" else {where: mass})), backend)
    if where == "fresh":
        object.__setattr__(sampler.configs[0], "fresh", mass)
    actions = {
        "fresh": lambda: place(sampler, backend),
        "reported": lambda: sampler.feedback(draw(sampler, backend), Signals(td_error=torch.ones(1, 8))),
        "advanced": lambda: sampler.advance(1),
    }
    if backend == "numba":
        with pytest.raises(UserError, match=r"gave member 0 the mass .*finite and above 0"):
            actions[where]()
        return
    actions[where]()
    if where != "fresh":  # a new slot has no mass to keep: it is drawn by the floor alone
        require_sound(sampler)
    with pytest.raises(UserError, match=r"rule of member 0"):
        sampler.check()
    sampler.check()


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_masses_of_empty_slots_do_not_count(backend) -> None:
    sampler = filled(Broken(), backend)
    sampler.advance(1)
    sampler.check()
    assert sampler.probabilities().tolist()[0] == pytest.approx([0.9 * m / 11 + 0.1 / 6 for m in (2, 1, 2, 2, 2, 2)])


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("low_and_high", [(1e-37, 1e12), (1e-300, 1e300)])
def test_norms_of_all_sizes_do_not_overflow_predictions(low_and_high, backend) -> None:
    sampler = filled(Predictive(refresh_every=4), backend)
    for update in range(1, 13):
        norms = torch.tensor(low_and_high, dtype=torch.float64).repeat(4).unsqueeze(0)
        sampler.feedback(draw(sampler, backend), Signals(gradient_norm={"critic": norms}))
        sampler.advance(update)
        place(sampler, backend)
        require_sound(sampler)
        assert sampler.weights(draw(sampler, backend)).isfinite().all()
    sampler.check()


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.needs & _REPORTED])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_signal_that_is_not_finite_leaves_no_trace_where_it_cannot_raise(name, value) -> None:
    """Whatever a rule keeps stays finite, and so do the masses."""
    sampler = Sampler([RULES[name].config_type()], capacity=8, total_updates=100, backend="torch")
    for _ in range(6):
        place(sampler, "torch")
    for update in range(1, 4):
        values = torch.rand(1, 8) + 0.5
        values[0, 3] = value
        sampler.feedback(draw(sampler, "torch"), Signals(values, {"actor": values, "critic": values}))
        sampler.advance(update)
        require_sound(sampler)
    for entry, state in sampler.state_dict().items():
        assert state.isfinite().all(), entry
    with pytest.raises(ValueError, match="member"):
        sampler.check()


def test_masses_of_live_slots_alone_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(BrokenRule, "advance", lambda *_: torch.ones(1, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"returned masses \(1, 6\).*all slots, \(1, 8\)"):
        filled(Broken(), "numba").advance(1)


def test_what_a_rule_declares_of_slots_must_have_one_entry_a_slot(monkeypatch) -> None:
    monkeypatch.setitem(RULES, "broken", Misshapen)
    with pytest.raises(ValueError, match=r"slot_state.*sums.*\(3,\).*1, 8"):
        Sampler([Broken()], capacity=8)
