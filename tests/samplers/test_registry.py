"""Samplers by name, and what is said where one is not found."""

import pytest

from aes_rl import Adaptive, Predictive, Replay, Sampler
from aes_rl.samplers.registry import PredictiveRule, resolve


def test_a_name_stands_for_its_configuration() -> None:
    assert resolve("predictive") == Predictive()
    assert resolve("adaptive:nu=auto,floor=0.1") == Adaptive(nu="auto", floor=0.1)
    config = Adaptive(floor=0.3)
    assert resolve(config) is config


def test_a_name_is_accepted_where_a_configuration_is() -> None:
    sampler = Sampler(["predictive", Adaptive(floor=0.3), "adaptive:floor=0.3"], capacity=8)
    assert sampler.configs == (Predictive(), Adaptive(floor=0.3), Adaptive(floor=0.3))
    replay = Replay(["predictive"], capacity=8, observation_size=1, action_size=1, seeds=[0])
    assert replay.sampler.configs == (Predictive(),)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Predictive, r"Predictive is a class; give a configuration, Predictive\(\)"),
        (PredictiveRule, r"PredictiveRule is a class; give a configuration, Predictive\(\)"),
        (
            None,
            r"None is not the configuration of a registered sampler; give one such as Predictive\(\), or a name: uni",
        ),
        ("predictiv", r"unknown sampler 'predictiv'; the samplers are uniform.*; did you mean 'predictive'\?"),
        ("per", r"unknown sampler 'per'; the samplers are uniform.*; --module adds your own$"),
        ("adaptive:kappa=0.1", r"sampler 'adaptive': 'kappa=0.1': there is no option 'kappa'"),
    ],
)
def test_what_is_no_sampler(sampler, message) -> None:
    for call in (resolve, lambda one: Sampler([one], capacity=8)):
        with pytest.raises((TypeError, ValueError), match=message) as caught:
            call(sampler)
        assert "\n" not in str(caught.value)


def test_a_sampler_without_its_list() -> None:
    for sampler in ("predictive", Predictive()):
        with pytest.raises(TypeError, match=r"pass a list with one configuration per member: \["):
            Replay(sampler, capacity=8, observation_size=1, action_size=1, seeds=[0])
