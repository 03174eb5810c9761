"""Experience selection for off-policy reinforcement learning."""

from typing import TYPE_CHECKING

from aes_rl.lazy import offer

if TYPE_CHECKING:
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

__getattr__ = offer(
    __name__,
    dict.fromkeys(("Batch", "Replay", "Sample"), "aes_rl.replay")
    | dict.fromkeys(("Draw", "Signal", "Signals", "Transition"), "aes_rl.types")
    | dict.fromkeys(
        ("Adaptive", "FullInformation", "Naive", "Prioritized", "Sampler", "Uniform", "configure"), "aes_rl.samplers"
    ),
)
