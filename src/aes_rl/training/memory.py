"""How much memory a population's replay needs, and whether it is there."""

from itertools import pairwise

import psutil
import torch

from aes_rl.errors import UserError
from aes_rl.training.board import Sizes
from aes_rl.training.config import Training

_BYTES_BESIDE_A_ROW = 21
"""Mass, its share of the sum tree, insertion stamp, and a rule's own number a slot."""


_COPIES = 16
"""Of one network's parameters and activations: networks, targets, gradients, the optimiser's moments."""


def needed(config: Training, sizes: Sizes) -> int:
    """Bytes of all members' transitions with what samplers keep beside them, of networks and of a batch."""
    row = 4 * (2 * sizes.observation + sizes.action + 2)
    ages = 4 if config.measure_variance_every is not None else 0
    slots = config.capacity * (row + _BYTES_BESIDE_A_ROW + ages)
    agent = config.agent_config
    widths = (sizes.observation + sizes.action, *agent.hidden, 2 * sizes.action)
    network = 4 * sum(units * (before + 1) for before, units in pairwise(widths))
    batch = agent.batch_size * (row + 4 * sum(widths))
    return len(config.members) * (slots + _COPIES * (network + batch))


def available(device: str) -> int:
    """Free bytes of a device."""
    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device is {device} and torch {torch.__version__} finds no CUDA GPU; use --device cpu")
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return int(psutil.virtual_memory().available)


def require(config: Training, sizes: Sizes) -> None:
    """Raise if the replay of a population does not fit."""
    wanted, free = needed(config, sizes), available(config.device)
    if wanted > free:
        raise UserError(
            f"{len(config.members)} members with {config.capacity:,} slots each need {gigabytes(wanted)} and "
            f"{config.device} has {gigabytes(free)} free; train fewer members at a time, or lower capacity"
        )


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.1f} GB"
