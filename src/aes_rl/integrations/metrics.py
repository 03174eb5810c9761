"""Numbers that show how the selection goes inside another library's training."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.integrations.selection import Pending, Selection
from aes_rl.lab.variance import captured_fraction


def of_batch(batch: Pending) -> dict[str, float]:
    """Of the last batch: the range of its weights, its effective sample size and the critics' loss."""
    weights = batch.weights.detach().double().cpu()
    found = {
        "smallest_weight": weights.min().item(),
        "largest_weight": weights.max().item(),
        "effective_sample_size": (weights.sum().square() / weights.square().sum()).item(),
    }
    if batch.critic_terms:
        terms = torch.stack([compute() for compute in batch.critic_terms]).sum(dim=0).double().cpu()
        found["weighted_critic_loss"] = (weights * terms).mean().item()
        found["unweighted_critic_loss"] = terms.mean().item()
    return found


def of_feedback(selection: Selection) -> dict[str, float]:
    """How much of the buffer has feedback, and how old it is; empty for a sampler that needs none."""
    if not selection.needs or len(selection) == 0:
        return {}
    updates = selection.last_report[: len(selection)]
    reported = updates[updates > 0]
    found = {"never_reported": 1 - len(reported) / len(updates)}
    if len(reported):
        found["median_feedback_age"] = float(selection.updates - np.median(reported))
    return found


def captured(norms: dict[str, Float[Tensor, "m"]], probabilities: Float[Tensor, "m"]) -> dict[str, float]:
    """The captured fraction of all networks together and of each one, from squared gradient norms."""
    total = torch.stack(list(norms.values())).sum(dim=0)
    found = {"captured_fraction": captured_fraction(total, probabilities).item()}
    for name, norm in norms.items():
        found[f"captured_fraction_{name}"] = captured_fraction(norm, probabilities).item()
    return found
