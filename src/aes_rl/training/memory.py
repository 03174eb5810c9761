"""How much memory a population's replay needs, and whether it is there."""

import torch

from aes_rl.errors import UserError
from aes_rl.training.board import Sizes
from aes_rl.training.config import Training

_BYTES_BESIDE_A_ROW = 21
"""Mass, its share of the sum tree, insertion stamp, and a rule's own number a slot."""


def needed(config: Training, sizes: Sizes) -> int:
    """Bytes of all members' transitions and what samplers keep beside them; networks are small against it."""
    row = 4 * (2 * sizes.observation + sizes.action + 2)
    ages = 4 if config.measure_variance_every is not None else 0
    return len(config.members) * config.capacity * (row + _BYTES_BESIDE_A_ROW + ages)


def available(device: str) -> int:
    """Free bytes of a device."""
    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device is {device} and torch {torch.__version__} finds no CUDA GPU; use --device cpu")
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    with open("/proc/meminfo") as lines:
        known = dict(line.split(":", 1) for line in lines)
    return int(known["MemAvailable"].split()[0]) * 1024


def require(config: Training, sizes: Sizes) -> None:
    """Raise if the replay of a population does not fit."""
    wanted, free = needed(config, sizes), available(config.device)
    if wanted > free:
        raise UserError(
            f"the replay of {len(config.members)} members with {config.capacity:,} slots each needs "
            f"{gigabytes(wanted)} and {config.device} has {gigabytes(free)} free; train fewer members at a time, or "
            "lower capacity"
        )


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.1f} GB"
