"""Per-sample gradient norms: taps on the backward pass of the update, and a slow exact reference."""

from aes_rl.gradients.taps import Taps, squared_norms

__all__ = ["Taps", "squared_norms"]
