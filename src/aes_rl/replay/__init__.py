"""Replay buffers: storage of transitions, and the buffer that combines it with a sampler."""

from aes_rl.replay.replay import Replay, Sample
from aes_rl.replay.storage import Storage
from aes_rl.types import Batch

__all__ = ["Batch", "Replay", "Sample", "Storage"]
