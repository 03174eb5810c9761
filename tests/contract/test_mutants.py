"""The battery finds what authors of samplers get wrong: the documented rule passes, each way to break it does not."""

import pytest
import torch

from aes_rl.errors import UserError
from aes_rl.samplers import RULES
from aes_rl.testing import check_sampler
from aes_rl.types import Report
from tests import own_sampler

MODULE = {"__name__": "my_sampler"}
exec(compile(own_sampler.SOURCE + own_sampler.RANKED, "documentation", "exec"), MODULE)
Fading, FadingRule = MODULE["Fading"], RULES.pop("fading")
Ranked, RankedRule = MODULE["Ranked"], RULES.pop("ranked")


def as_if_current(report):
    """The report as a rule takes it that does not ask what was overwritten since the draw."""
    return Report(report.draw, report.signals, torch.ones_like(report.is_current).numpy(), report.norm_views)


class Forgetful(FadingRule):
    def slot_state(self):
        return {}


class Attached(FadingRule):
    def fresh(self, slots):
        return torch.ones(slots.shape, dtype=torch.float64)


class Gullible(FadingRule):
    def feedback(self, report):
        return super().feedback(as_if_current(report))


class Boastful(FadingRule):
    is_sequential = True


class Biased(FadingRule):
    def weights(self, draw):
        return super().weights(draw) * 1.01


class OneScale(FadingRule):
    """Weights are divided by the largest of all members."""

    is_unbiased = False

    def weights(self, draw):
        weights = 1 / (int(draw.size) * draw.probabilities)
        return (weights / weights.max()).float()


class InfiniteWeights(FadingRule):
    is_unbiased = False

    def weights(self, draw):
        return torch.full(draw.slots.shape, torch.inf)


class OneWeight(FadingRule):
    is_unbiased = False

    def weights(self, draw):
        return torch.ones(draw.slots.shape)[:, :1]


class PresentWeights(FadingRule):
    """Weights by the masses of the moment, not by those that the draw was made with."""

    is_unbiased = False

    def weights(self, draw):
        return (1 / self.means.gather(1, draw.slots)).float()


class Deaf(FadingRule):
    is_sequential = True

    def feedback(self, report):
        del report


class Sharing(RankedRule):
    """All members get the mean over members when they rank."""

    def advance(self, update_step):
        masses = super().advance(update_step)
        return None if masses is None else masses.mean(dim=0, keepdim=True).expand_as(masses).contiguous()


class OneColumn(FadingRule):
    def feedback(self, report):
        return super().feedback(report)[:, :1]


class RandomPlaces(FadingRule):
    overwrite = "random"


class Impatient(RankedRule):
    """Masses follow every report at once, and the ranks of the means now and then."""

    def feedback(self, report):
        super().feedback(report)
        return report.signals.td_error.double().abs().clamp(min=1e-3)


class ByPeak(Impatient):
    """Ranks by the largest error of each slot, which `fresh` does not reset."""

    def __init__(self, config, setting):
        super().__init__(config, setting)
        self.peaks = torch.ones_like(self.means)

    def feedback(self, report):
        errors = torch.where(report.is_current, report.signals.td_error.double().abs(), 0)
        self.peaks.scatter_reduce_(1, report.draw.slots, errors, "amax")
        return super().feedback(report)

    def advance(self, update_step):
        return self.peaks.clone() if update_step % self.rank_every == 0 else None

    def state_dict(self):
        return super().state_dict() | {"peaks": self.peaks}


class ByTotal(ByPeak):
    """Ranks by the mean error of each slot; `fresh` resets how many there were, but not their sum."""

    def __init__(self, config, setting):
        super().__init__(config, setting)
        self.counts = torch.zeros_like(self.means)

    def fresh(self, slots):
        self.counts.scatter_(1, slots, 0.0)
        return super().fresh(slots)

    def feedback(self, report):
        errors = torch.where(report.is_current, report.signals.td_error.double().abs(), 0)
        self.peaks.scatter_add_(1, report.draw.slots, errors)
        self.counts.scatter_add_(1, report.draw.slots, report.is_current.double())
        return Impatient.feedback(self, report)

    def advance(self, update_step):
        if update_step % self.rank_every:
            return None
        return torch.where(self.counts > 0, self.peaks / self.counts.clamp(min=1), 1.0)

    def state_dict(self):
        return super().state_dict() | {"counts": self.counts}


class Credulous(RankedRule):
    """Learns from reports on overwritten content, and shows it when it ranks."""

    def feedback(self, report):
        super().feedback(as_if_current(report))


class Unsaved(Impatient):
    def slot_state(self):
        return {}

    def state_dict(self):
        return {}


class EmptyFirst(Impatient):
    """Ranks slots that nothing was reported of first, those that nothing was written to included."""

    def __init__(self, config, setting):
        super().__init__(config, setting)
        self.means.fill_(1e9)

    def advance(self, update_step):
        self.live.fill_(self.means.shape[1])
        return super().advance(update_step)


def undeclared(rule):
    """The same with a period that the battery is not told of."""
    return type(rule.__name__, (rule,), {"updates_options": ()})


def check(monkeypatch, rule, **options):
    """As the page calls it."""
    monkeypatch.setitem(RULES, "own", rule)
    check_sampler(rule.config_type(**options), members=[2], capacities=[7, 64], backends=["numba"])


@pytest.mark.parametrize("rule", [FadingRule, RankedRule, Impatient, undeclared(RankedRule)])
def test_a_sound_rule_passes(monkeypatch, rule) -> None:
    check(monkeypatch, rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (ByPeak, "reports on overwritten content have an effect"),
        (ByTotal, "reports on overwritten content have an effect"),
        (Credulous, "where is_current is False"),
        (Unsaved, r"missing from state_dict\(\)"),
        (EmptyFirst, "empty slots must not change the masses"),
    ],
)
def test_what_only_a_rare_advance_shows_is_found(monkeypatch, rule, message) -> None:
    with pytest.raises(AssertionError, match=message):
        check(monkeypatch, rule)
    with pytest.raises(AssertionError, match=message):
        check(monkeypatch, undeclared(rule))
    with pytest.raises(AssertionError, match=message):
        check(monkeypatch, rule, rank_every=1)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Forgetful, "state_dict"),
        (Attached, "`fresh` kept old state"),
        (Gullible, "where is_current is False"),
        (Boastful, "is_sequential = False"),
        (Biased, "the weights are not"),
        (OneScale, "and the same member alone have other weights"),
        (InfiniteWeights, "weights must be positive and finite"),
        (OneWeight, r"weights of shape \(2, 1\); return"),
        (PresentWeights, "compute them from the draw alone"),
        (Deaf, "feedback had no effect"),
        (Sharing, "and the same member alone have other"),
        (OneColumn, r"OneColumn.feedback returned masses of shape \(2, 1\); return \(2, \d+\)"),
    ],
)
def test_a_broken_one_is_told_what_is_wrong(monkeypatch, rule, message) -> None:
    with pytest.raises(AssertionError, match=message):
        check(monkeypatch, rule)


def test_an_unknown_way_to_overwrite_is_told(monkeypatch) -> None:
    with pytest.raises(UserError, match=r"RandomPlaces.overwrite is 'random'; .*adaptive"):
        check(monkeypatch, RandomPlaces)
