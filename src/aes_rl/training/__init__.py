"""Training runs: configuration, environments, the loop, evaluation, tables and checkpoints."""

from aes_rl.training.config import PAPER_TASKS, Training
from aes_rl.training.loop import train
from aes_rl.training.presets import preset
from aes_rl.training.run import Run
from aes_rl.training.session import Interrupted, Session

__all__ = ["PAPER_TASKS", "Interrupted", "Run", "Session", "Training", "preset", "train"]
