"""Samplers: rules that choose which stored transitions to replay."""

from aes_rl.samplers.adaptive import Adaptive
from aes_rl.samplers.full_information import FullInformation
from aes_rl.samplers.last_value import LastValue
from aes_rl.samplers.naive import Naive
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.prioritized import Prioritized
from aes_rl.samplers.registry import RULES, configure
from aes_rl.samplers.sampler import Sampler
from aes_rl.samplers.uniform import Uniform

__all__ = [
    "RULES",
    "Adaptive",
    "FullInformation",
    "LastValue",
    "Naive",
    "Predictive",
    "Prioritized",
    "Sampler",
    "Uniform",
    "configure",
]
