"""The battery finds what authors of samplers get wrong: a sound rule passes, each way to break it does not."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from aes_rl import weighting
from aes_rl.samplers import RULES
from aes_rl.samplers.rule import AbstractRule
from aes_rl.testing import check_sampler
from aes_rl.types import Signal


@dataclass(frozen=True)
class Fading:
    """A mean of the TD errors of a slot that fades by half."""

    floor: float = 0.2


class FadingRule(AbstractRule):
    config_type: ClassVar = Fading
    needs = Signal.TD_ERROR
    is_unbiased = True
    is_sequential = False
    overwrite = "fifo"

    def __init__(self, config, setting):
        self.floor, self.setting = config.floor, setting
        self.means = torch.ones(setting.members, setting.capacity, dtype=torch.float64)

    def fresh(self, slots):
        self.means.scatter_(1, torch.as_tensor(slots), 1.0)
        return torch.ones(slots.shape, dtype=torch.float64)

    def feedback(self, draw, signals):
        errors = signals.td_error.double().abs()
        before = self.means.gather(1, draw.slots)
        means = torch.where(self.counts(errors), 0.5 * before + 0.5 * errors, before)
        self.means.scatter_(1, draw.slots, self.of_last(draw.slots, means))
        return self.means.gather(1, draw.slots)

    def counts(self, errors):
        return errors > 0

    def of_last(self, slots, values):
        """The value of each slot's last occurrence in the batch."""
        positions = torch.arange(slots.shape[1])
        last = torch.where(slots.unsqueeze(-1) == slots.unsqueeze(-2), positions, -1).amax(dim=-1)
        return values.gather(1, last)

    def weights(self, draw):
        return weighting.unbiased(draw, self.setting.engine, self.setting.dtype)

    def advance(self, update_step):
        del update_step

    def state_dict(self):
        return {"means": self.means}


class Forgetful(FadingRule):
    def state_dict(self):
        return {}


class Attached(FadingRule):
    def fresh(self, slots):
        return torch.ones(slots.shape, dtype=torch.float64)


class Gullible(FadingRule):
    def counts(self, errors):
        return torch.ones_like(errors, dtype=torch.bool)


class Boastful(FadingRule):
    is_sequential = True


class Biased(FadingRule):
    def weights(self, draw):
        return super().weights(draw) * 1.01


def check(monkeypatch, rule):
    monkeypatch.setitem(RULES, "fading", rule)
    check_sampler(Fading(), members=[2], capacities=[7, 64], engines=["numba"])


def test_a_sound_rule_passes(monkeypatch) -> None:
    check(monkeypatch, FadingRule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Forgetful, "state_dict"),
        (Attached, "`fresh` forgot too little"),
        (Gullible, "reaches a rule as 0"),
        (Boastful, "is_sequential = False"),
        (Biased, "the weights are not"),
    ],
)
def test_a_broken_one_is_told_what_is_wrong(monkeypatch, rule, message) -> None:
    with pytest.raises(AssertionError, match=message):
        check(monkeypatch, rule)
