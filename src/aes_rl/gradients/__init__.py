"""Per-sample gradient norms: taps on the update's own backward, and the slow exact twin."""

from aes_rl.gradients.taps import Taps, squared_norms

__all__ = ["Taps", "squared_norms"]
