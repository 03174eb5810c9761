"""The battery finds what authors of samplers get wrong: the documented rule passes, each way to break it does not."""

import pytest
import torch

from aes_rl.samplers import RULES
from aes_rl.testing import check_sampler
from aes_rl.types import Signals
from tests import own_sampler

MODULE = {"__name__": "my_sampler"}
exec(compile(own_sampler.SOURCE, "documentation", "exec"), MODULE)
Fading, FadingRule = MODULE["Fading"], RULES.pop("fading")


class Forgetful(FadingRule):
    def state_dict(self):
        return {}


class Attached(FadingRule):
    def fresh(self, slots):
        return torch.ones(slots.shape, dtype=torch.float64)


class Gullible(FadingRule):
    def feedback(self, draw, signals):
        return super().feedback(draw, Signals(signals.td_error.abs().clamp(min=1e-30)))


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
