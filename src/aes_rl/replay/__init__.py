"""Replay buffers: storage of transitions, and the buffer that combines it with a sampler."""

from aes_rl.replay.replay import Replay, Sample
from aes_rl.replay.storage import Batch, Storage

__all__ = ["Batch", "Replay", "Sample", "Storage"]
