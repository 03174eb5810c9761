"""Stored experience: packed rows, and the buffer that joins them to a sampler."""

from aes_rl.replay.replay import Replay, Sample
from aes_rl.replay.storage import Batch, Storage

__all__ = ["Batch", "Replay", "Sample", "Storage"]
