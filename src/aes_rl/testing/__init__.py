"""Tests for authors of samplers: the checks that every sampler of this package passes."""

from aes_rl.testing.battery import CHECKS, check_sampler
from aes_rl.testing.simulated_run import Case, SimulatedRun

__all__ = ["CHECKS", "Case", "Life", "SimulatedRun", "check_sampler"]

Life = SimulatedRun
"""The former name."""
