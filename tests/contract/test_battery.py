"""The contract battery on every registered sampler, both backends."""

import pytest

from aes_rl import Adaptive, FullInformation, LastValue, Naive, Predictive, Prioritized, Uniform
from aes_rl.samplers import RULES
from aes_rl.samplers.geometric import Geometric
from aes_rl.samplers.la3p import LA3P, LA3POfActor
from aes_rl.samplers.laber import LaBER
from aes_rl.samplers.lap import LAP
from aes_rl.samplers.roer import ROER
from aes_rl.testing import check_sampler

CONFIGS = {
    "uniform": Uniform(),
    "uniform, uniform overwriting": Uniform(overwrite="uniform"),
    "prioritized": Prioritized(),
    "prioritized, adaptive overwriting": Prioritized(overwrite="adaptive"),
    "adaptive": Adaptive(forget_every=7),
    "adaptive, hard": Adaptive(floor=0.1, nu=10.0, retention=0.0, forget_every=11),
    "adaptive, annealed": Adaptive(retention=0.8, retention_end=0.2, forget_every=5, networks=("actor",)),
    "adaptive, own nu": Adaptive(nu="auto", forget_every=6),
    "predictive": Predictive(refresh_every=7),
    "predictive, deviation": Predictive(0.3, forecast="deviation", memory=30, mean_memory=9, refresh_every=7),
    "predictive, mean and last": Predictive(0.3, forecast="mean-and-last", memory=30, mean_memory=9, refresh_every=7),
    "predictive, balanced": Predictive(networks="balanced", refresh_every=7),
    "last value": LastValue(memory=20),
    "last value, balanced": LastValue(memory=20, networks="balanced"),
    "adaptive, balanced": Adaptive(forget_every=7, networks="balanced"),
    "naive, balanced": Naive(updates_per_epoch=10, networks="balanced"),
    "predictive, adaptive overwriting": Predictive(0.3, memory=20, refresh_every=3, overwrite="adaptive"),
    "geometric": Geometric(mean_age=30, refresh_every=9),
    "geometric, unbiased": Geometric(mean_age=20, unbiased=True, floor=0.2, refresh_every=5, overwrite="uniform"),
    "lap": LAP(),
    "lap, unbiased": LAP(0.8, smallest_error=0.1, unbiased=True, overwrite="uniform"),
    "roer": ROER(),
    "roer, unbiased": ROER(30.0, rate=0.3, smallest_priority=0.5, unbiased=True, overwrite="adaptive"),
    "laber, the candidates": LaBER(overwrite="uniform"),
    "la3p, the critics": LA3P(),
    "la3p, the actor": LA3POfActor(0.9, smallest_error=0.1, floor=0.1, unbiased=True),
    "naive": Naive(updates_per_epoch=10),
    "full-information": FullInformation(),
}


def test_every_registered_sampler_has_a_row() -> None:
    assert {rule.config_type for rule in RULES.values()} <= {type(config) for config in CONFIGS.values()}


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("capacity", [1, 7, 64, 1000])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_contract(config, members, capacity, backend) -> None:
    check_sampler(config, members=[members], capacities=[capacity], backends=[backend])
