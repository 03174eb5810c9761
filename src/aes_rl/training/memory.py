"""How much memory a population needs, and whether that much is free."""

from itertools import pairwise

import psutil
import torch

from aes_rl.errors import UserError
from aes_rl.samplers.rule import candidates_per_draw, draws_per_network
from aes_rl.training.config import Training
from aes_rl.training.vector.step_data import Sizes

_SAMPLER_BYTES_PER_SLOT = 26
"""Mass, its share of the sum tree, insertion stamp, and at most what predictive selection keeps of a slot."""
_COPIES = 16
"""Copies of one network's parameters and activations: networks, targets, gradients, the optimiser's moments."""


def needed(config: Training, sizes: Sizes) -> int:
    """Bytes that all members' transitions, samplers, networks and batches need."""
    row = 4 * (2 * sizes.observation + sizes.action + 2)
    ages = 4 if config.measure_variance_every is not None else 0
    draws = len(config.members) + sum(map(draws_per_network, config.sampler_configs))
    slots = config.capacity * (len(config.members) * row + draws * (_SAMPLER_BYTES_PER_SLOT + ages))
    agent = config.agent_config
    widths = (sizes.observation + sizes.action, *agent.hidden, 2 * sizes.action)
    network = 4 * sum(units * (before + 1) for before, units in pairwise(widths))
    candidates = max(map(candidates_per_draw, config.sampler_configs))
    batch = agent.batch_size * candidates * (row + 4 * sum(widths))
    return slots + len(config.members) * _COPIES * (network + batch)


def available(device: str) -> int:
    """Free memory of a device in bytes."""
    if torch.device(device).type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device is {device} and torch {torch.__version__} finds no CUDA GPU; use --device cpu")
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return int(psutil.virtual_memory().available)


def require(config: Training, sizes: Sizes) -> None:
    """Raise if a population does not fit into its device's memory."""
    wanted, free = needed(config, sizes), available(config.device)
    if wanted > free:
        raise UserError(
            f"a population of {len(config.members)} with {config.capacity:,} slots per member needs "
            f"{gigabytes(wanted)} and {config.device} has {gigabytes(free)} free; train fewer members at a time, or "
            "lower capacity"
        )


def gigabytes(size: int) -> str:
    """A size in bytes as text."""
    return f"{size / 1e9:.1f} GB"
