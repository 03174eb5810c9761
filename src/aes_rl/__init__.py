"""Experience selection for off-policy reinforcement learning."""

from aes_rl.replay import Batch, Replay, Sample
from aes_rl.samplers import Adaptive, FullInformation, Naive, Prioritized, Sampler, Uniform, configure
from aes_rl.types import Draw, Signal, Signals, Transition

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Batch",
    "Draw",
    "FullInformation",
    "Naive",
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
