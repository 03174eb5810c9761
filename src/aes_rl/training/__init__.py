"""Training runs: configuration, environments, the training loop, evaluation, tables and checkpoints."""

from typing import TYPE_CHECKING

from aes_rl.lazy import offer

if TYPE_CHECKING:
    from aes_rl.training.config import PAPER_TASKS, Training
    from aes_rl.training.loop import train
    from aes_rl.training.presets import preset
    from aes_rl.training.runner import Interrupted, Runner
    from aes_rl.training.state import RunState

__all__ = ["PAPER_TASKS", "Interrupted", "RunState", "Runner", "Training", "preset", "train"]

__getattr__, __dir__ = offer(
    __name__,
    {
        "PAPER_TASKS": "aes_rl.training.config",
        "Training": "aes_rl.training.config",
        "train": "aes_rl.training.loop",
        "preset": "aes_rl.training.presets",
        "Interrupted": "aes_rl.training.runner",
        "Runner": "aes_rl.training.runner",
        "RunState": "aes_rl.training.state",
    },
)
