"""What a learner must do. It is told transitions and weights and knows nothing of how they were chosen."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl import checks
from aes_rl.backends import fused
from aes_rl.gradients.perceptron import Perceptron
from aes_rl.types import Signals

Array = np.ndarray[Any, Any]


class Update(NamedTuple):
    """What an update tells: the losses before it, and what samplers want to hear."""

    losses: dict[str, Float[Tensor, "P"]]
    signals: Signals


class AbstractAgent(ABC):
    """A learner of P members. Actions are scaled to [−1, 1]; losses and signals are at an update's first parameters."""

    config_type: ClassVar[type[Any]]

    @abstractmethod
    def noise_size(self, batch_size: int) -> int:
        """Standard normal numbers a member that one update needs."""

    @abstractmethod
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        """Exploring actions, from standard normal noise."""

    @abstractmethod
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        """Deterministic actions, for E test environments a member."""

    def policy(self) -> list[tuple[Array, Array]]:
        """Weight [P, in, out] and bias [P, 1, out] of every layer of the greedy policy, copied from the device.

        ReLU is between the layers; the action is the tanh of the first outputs, as many as it has numbers.
        """
        layers = zip(self.trained()["actor"].weights, self.trained()["actor"].biases, strict=True)
        return [(weight.cpu().numpy().copy(), bias.cpu().numpy().copy()) for weight, bias in layers]

    @abstractmethod
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        """Forget exploration state of the members whose episode ended; on a GPU this runs beside `descend`."""

    @abstractmethod
    def differentiate(
        self, batch: Any, weights: Float[Tensor, "P B"], noise: Float[Tensor, "P count"], norm_members: slice | None
    ) -> Update:
        """The gradients of every member on its batch, each sample's loss terms multiplied by its weight.

        They wait for `descend`; the parameters stay as they are. Norms are reported of `norm_members`, zeros of the
        others, and none at all if it is None.
        """

    @abstractmethod
    def descend(self) -> None:
        """One step along the gradients; on a GPU samplers hear of the update, and episodes end, beside it."""

    def update(
        self, batch: Any, weights: Float[Tensor, "P B"], noise: Float[Tensor, "P count"], norm_members: slice | None
    ) -> Update:
        """Differentiate and descend, for whoever does nothing in between; the training loop does."""
        update = self.differentiate(batch, weights, noise, norm_members)
        self.descend()
        return update

    @abstractmethod
    def trained(self) -> dict[str, Perceptron]:
        """The networks that an update trains, by the names of their gradient norms."""

    @abstractmethod
    def metric(self) -> dict[str, list[tuple[Tensor, Tensor]]]:
        """Adam's metric on the parameters of each: what the squares of a gradient are multiplied by."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, targets, optimiser and exploration state, as live tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state in place."""
        own = self.state_dict()
        checks.same_layout("agent", own, state)
        for name, value in own.items():
            value.copy_(state[name])


def weighted(terms: Float[Tensor, "P *X B"], weights: Float[Tensor, "P B"]) -> Float[Tensor, "P"]:
    """Each member's loss: the batch mean of its weighted terms, summed over further axes such as the twin critics."""
    if terms.dim() == 3:
        terms = terms.sum(dim=1)
    return (terms * weights).mean(dim=-1)


@fused
def critic_objective(
    values: Float[Tensor, "P *twins B"],
    next_value: Float[Tensor, "P B"],
    reward: Float[Tensor, "P B"],
    terminated: Float[Tensor, "P B"],
    weights: Float[Tensor, "P B"],
    discount: float,
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P B"]]:
    """The critics' loss, and the absolute temporal-difference error, averaged over the critics."""
    target = torch.addcmul(reward, 1 - terminated, next_value, value=discount)
    error = values - (target.unsqueeze(1) if values.dim() == 3 else target)
    size = error.detach().abs()
    return weighted(error.square(), weights), size.mean(dim=1) if values.dim() == 3 else size


@fused
def norms_of(
    weights: Float[Tensor, "P B"], tapped: Mapping[str, Float[Tensor, "K B"] | None]
) -> dict[str, Float[Tensor, "P B"]]:
    """d(i) by kind of network, summed over its K/P copies a member; empty where no norms were wanted (S2)."""
    shares = {name: share for name, share in tapped.items() if share is not None}
    if not shares:
        return {}
    members, size = weights.shape
    undone = (size / weights).square()
    return {
        name: undone * (share if len(share) == members else share.view(members, -1, size).sum(dim=1))
        for name, share in shares.items()
    }
