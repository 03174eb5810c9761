"""Experience selection for off-policy reinforcement learning."""

from typing import TYPE_CHECKING

from aes_rl.lazy import offer

if TYPE_CHECKING:
    from aes_rl.replay import Batch, Replay, Sample
    from aes_rl.samplers import (
        Adaptive,
        FullInformation,
        LastValue,
        Naive,
        Predictive,
        Prioritized,
        Sampler,
        Uniform,
        configure,
    )
    from aes_rl.types import Draw, Signal, Signals, Transition

__version__ = "0.2.0"

__all__ = [
    "Adaptive",
    "Batch",
    "Draw",
    "FullInformation",
    "LastValue",
    "Naive",
    "Predictive",
    "Prioritized",
    "Replay",
    "Sample",
    "Sampler",
    "Signal",
    "Signals",
    "Transition",
    "Uniform",
    "configure",
]

_RECORDS = ("Draw", "Signal", "Signals", "Transition")
_REPLAY = ("Batch", "Replay", "Sample")
_HOMES = dict.fromkeys(__all__, "aes_rl.samplers")
_HOMES |= dict.fromkeys(_REPLAY, "aes_rl.replay") | dict.fromkeys(_RECORDS, "aes_rl.types")
__getattr__, __dir__ = offer(__name__, _HOMES)
