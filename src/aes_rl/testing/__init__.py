"""Tests for authors of samplers: the checks that every sampler of this package passes."""

from aes_rl.testing.battery import CHECKS, check_sampler
from aes_rl.testing.history import Case, Life

__all__ = ["CHECKS", "Case", "Life", "check_sampler"]
