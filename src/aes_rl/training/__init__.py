"""Training runs: configuration, environments, the loop, evaluation, tables and checkpoints."""

from typing import TYPE_CHECKING

from aes_rl.lazy import offer

if TYPE_CHECKING:
    from aes_rl.training.config import PAPER_TASKS, Training
    from aes_rl.training.loop import train
    from aes_rl.training.presets import preset
    from aes_rl.training.run import Run
    from aes_rl.training.session import Interrupted, Session

__all__ = ["PAPER_TASKS", "Interrupted", "Run", "Session", "Training", "preset", "train"]

__getattr__, __dir__ = offer(
    __name__,
    {
        "PAPER_TASKS": "aes_rl.training.config",
        "Training": "aes_rl.training.config",
        "train": "aes_rl.training.loop",
        "preset": "aes_rl.training.presets",
        "Run": "aes_rl.training.run",
        "Interrupted": "aes_rl.training.session",
        "Session": "aes_rl.training.session",
    },
)
