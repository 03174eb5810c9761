"""All selection rules, by the names used in configuration files, tests and the command line."""

import re
from dataclasses import fields, replace
from typing import Any

from aes_rl.errors import UserError
from aes_rl.options import assigned
from aes_rl.samplers.adaptive import AdaptiveRule
from aes_rl.samplers.full_information import FullInformationRule
from aes_rl.samplers.geometric import GeometricRule
from aes_rl.samplers.last_value import LastValueRule
from aes_rl.samplers.naive import NaiveRule
from aes_rl.samplers.predictive import PredictiveRule
from aes_rl.samplers.prioritized import PrioritizedRule
from aes_rl.samplers.rule import AbstractRule
from aes_rl.samplers.uniform import UniformRule

RULES: dict[str, type[AbstractRule]] = {
    "uniform": UniformRule,
    "prioritized": PrioritizedRule,
    "adaptive": AdaptiveRule,
    "predictive": PredictiveRule,
    "last-value": LastValueRule,
    "geometric": GeometricRule,
    "naive": NaiveRule,
    "full-information": FullInformationRule,
}


def configure(name: str, **options: Any) -> Any:
    """The configuration of the sampler with a registered name, such as `configure("adaptive", floor=0.1)`."""
    if name not in RULES:
        raise UserError(f"unknown sampler {name!r}; the samplers are {', '.join(RULES)}")
    config_type = RULES[name].config_type
    known = [field.name for field in fields(config_type)]
    for option in options:
        if option not in known:
            raise UserError(f"sampler {name!r} has no option {option!r}; its options are {', '.join(known)}")
    return config_type(**options)


def without_options(text: str) -> str:
    """The sampler's name in a specification with options, such as `adaptive:nu=auto,floor=0.1`."""
    return text.partition(":")[0]


def with_options_of(text: str, config: Any) -> Any:
    """A configuration changed by the options in a sampler's specification, if it has any."""
    name, colon, rest = text.partition(":")
    options = re.split(r",(?=[\w-]+=)", rest) if colon else []
    names = [option.partition("=")[0].replace("-", "_") for option in options]
    if len(set(names)) != len(names):
        raise UserError(f"sampler {text!r} repeats an option; give each option once")
    try:
        for option in options:
            config = assigned(config, option)
    except ValueError as error:
        raise UserError(f"sampler {name!r}: {error}") from None
    return config


def overwriting_the_oldest(config: Any, **options: Any) -> Any:
    """A configuration for a buffer that chooses itself which slot to overwrite; `options` changes other options."""
    if any(field.name == "overwrite" for field in fields(config)):
        options["overwrite"] = "fifo"
    return replace(config, **options)


def rule_for(config: Any) -> type[AbstractRule]:
    """The rule that a configuration configures."""
    for rule in RULES.values():
        if rule.config_type is type(config):
            return rule
    raise TypeError(
        f"{config!r} is not the configuration of a registered sampler; use one of {', '.join(RULES)}, or add your "
        "rule to aes_rl.samplers.registry.RULES"
    )
