"""All selection rules, by the names used in configuration files, tests and the command line.

A package installed beside this one adds its own by an entry point of the group `aes_rl.samplers`: a name and a rule
class. It is imported when the name, or a configuration of it, is first used.
"""

import re
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from aes_rl.errors import UserError
from aes_rl.options import assigned
from aes_rl.samplers.adaptive import AdaptiveRule
from aes_rl.samplers.full_information import FullInformationRule
from aes_rl.samplers.geometric import GeometricRule
from aes_rl.samplers.la3p import LA3PRule
from aes_rl.samplers.laber import LaBERRule
from aes_rl.samplers.lap import LAPRule
from aes_rl.samplers.last_value import LastValueRule
from aes_rl.samplers.naive import NaiveRule
from aes_rl.samplers.predictive import PredictiveRule
from aes_rl.samplers.prioritized import PrioritizedRule
from aes_rl.samplers.roer import ROERRule
from aes_rl.samplers.rule import AbstractRule, SamplerConfig
from aes_rl.samplers.uniform import UniformRule

RULES: dict[str, type[AbstractRule]] = {
    "uniform": UniformRule,
    "prioritized": PrioritizedRule,
    "adaptive": AdaptiveRule,
    "predictive": PredictiveRule,
    "last-value": LastValueRule,
    "geometric": GeometricRule,
    "lap": LAPRule,
    "roer": ROERRule,
    "laber": LaBERRule,
    "la3p": LA3PRule,
    "naive": NaiveRule,
    "full-information": FullInformationRule,
}
"""The rules imported so far: those of this package, of `--module`, and of installed packages once they are used."""
_GROUP = "aes_rl.samplers"


Config = TypeVar("Config", bound=SamplerConfig)


def names() -> list[str]:
    """The names of all samplers, those of installed packages included; imports nothing."""
    return list(dict.fromkeys([*RULES, *sorted(point.name for point in entry_points(group=_GROUP))]))


def find(name: str) -> type[AbstractRule]:
    """The rule with a name; that of an installed package is imported on first use and cannot replace one of ours."""
    if name not in RULES:
        offers = {point.value: point for point in entry_points(group=_GROUP, name=name)}
        if not offers:
            close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, names(), 1))
            raise UserError(
                f"unknown sampler {name!r}; the samplers are {', '.join(names())}; --module adds your own{close}"
            )
        if len(offers) > 1:
            packages = " and ".join(sorted(map(_package, offers.values())))
            raise UserError(f"sampler {name!r} is offered by {packages}; uninstall all but one of them")
        RULES[name] = _imported(*offers.values())
    return RULES[name]


def resolve(sampler: SamplerConfig | str) -> SamplerConfig:
    """A sampler's configuration, given itself or by name, with options if any: "adaptive:nu=auto,floor=0.1"."""
    if isinstance(sampler, str):
        return with_options_of(sampler, configure(without_options(sampler)))
    rule_for(sampler)  # raises if it is no configuration
    return sampler


def configure(name: str, **options: object) -> SamplerConfig:
    """The configuration of the sampler with a registered name, such as `configure("adaptive", floor=0.1)`."""
    config_type = find(name).config_type
    known = [field.name for field in fields(config_type)]
    for option in options:
        if option not in known:
            raise UserError(f"sampler {name!r} has no option {option!r}; its options are {', '.join(known)}")
    config: SamplerConfig = config_type(**options)
    return config


def without_options(text: str) -> str:
    """The sampler's name in a specification with options, such as `adaptive:nu=auto,floor=0.1`."""
    return text.partition(":")[0]


def with_options_of(text: str, config: Config) -> Config:
    """A configuration changed by the options in a sampler's specification, if it has any."""
    name, colon, rest = text.partition(":")
    options = re.split(r",(?=[\w-]+=)", rest) if colon else []
    given = [option.partition("=")[0].replace("-", "_") for option in options]
    if len(set(given)) != len(given):
        raise UserError(f"sampler {text!r} repeats an option; give each option once")
    try:
        for option in options:
            config = assigned(config, option)
    except ValueError as error:
        raise UserError(f"sampler {name!r}: {error}") from None
    return config


def overwriting_the_oldest(config: Config, **options: object) -> Config:
    """A configuration for a buffer that chooses itself which slot to overwrite; `options` changes other options."""
    if any(field.name == "overwrite" for field in fields(config)):
        options["overwrite"] = "fifo"
    return replace(config, **options)


def rule_for(config: SamplerConfig) -> type[AbstractRule]:
    """The rule that a configuration configures."""
    given: object = config
    for rule in RULES.values():
        if type(config) in (rule.config_type, rule.actor_config_type):
            return rule
        if isinstance(given, type) and given in (rule, rule.config_type):
            raise TypeError(f"{given.__name__} is a class; give a configuration, {rule.config_type.__name__}()")
    package = type(config).__module__.partition(".")[0]
    for point in entry_points(group=_GROUP):  # its module is imported already, but perhaps not its rule
        if point.module.partition(".")[0] == package and find(point.name).config_type is type(config):
            return find(point.name)
    raise TypeError(
        f"{config!r} is not the configuration of a registered sampler; give one such as Predictive(), or a name: "
        f"{', '.join(names())}. Add a rule of your own to aes_rl.samplers.registry.RULES"
    )


def _imported(point: EntryPoint) -> type[AbstractRule]:
    """The rule that an installed package offers."""
    offer = f"the sampler {point.name!r} of the package {_package(point)}"
    try:
        rule = point.load()
    except Exception as error:  # the package may raise anything
        raise UserError(
            f"{offer} cannot be imported from {point.value} ({type(error).__name__}: {error}); update the package, or "
            f"uninstall it"
        ) from error
    if not (isinstance(rule, type) and issubclass(rule, AbstractRule) and is_dataclass(rule.config_type)):
        raise UserError(
            f"{offer} is {point.value}, which is {rule!r}; it must be a subclass of aes_rl.samplers.rule.AbstractRule "
            "whose config_type is a dataclass"
        )
    return rule


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
