"""The interface of an agent. It gets transitions and weights, whichever sampler chose them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl import checks
from aes_rl.backends import fused
from aes_rl.errors import UserError
from aes_rl.gradients.perceptron import Perceptron
from aes_rl.types import CRITIC, ActorBatch, Batch, Signals

Array = NDArray[np.floating]
Metric = Literal["euclidean", "adam"]
"""How the squared gradient components of a sample are summed: as they are, or scaled as Adam's step scales them."""
METRICS: tuple[Metric, ...] = ("euclidean", "adam")


class Update(NamedTuple):
    """The results of an update: the losses before it, and the signals for samplers."""

    losses: dict[str, Float[Tensor, "P"]]
    signals: Signals


class AbstractAgent(ABC):
    """An agent of P members. Actions are in [−1, 1]; losses and signals are those before an update."""

    norm_metric: Metric = "euclidean"
    """Metric of the reported gradient norms."""

    @abstractmethod
    def noise_size(self, batch_size: int) -> int:
        """Number of standard normal noise samples per member per update."""

    @abstractmethod
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        """Exploration actions, given standard normal noise."""

    @abstractmethod
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        """Deterministic actions, for E test environments per member."""

    def policy(self) -> list[tuple[Array, Array]]:
        """Weight [P, in, out] and bias [P, 1, out] of every layer of the greedy policy, copied from the device.

        ReLU is applied between the layers. The action is the tanh of the first A outputs.
        """
        layers = zip(self.trained()["actor"].weights, self.trained()["actor"].biases, strict=True)
        return [(weight.cpu().numpy().copy(), bias.cpu().numpy().copy()) for weight, bias in layers]

    @abstractmethod
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        """Reset the exploration state of members whose episode ended. On a GPU this may run during `descend`."""

    @abstractmethod
    def differentiate(
        self,
        batch: Batch,
        weights: Float[Tensor, "P B"],
        noise: Float[Tensor, "P count"],
        norm_members: slice | None,
        actor: ActorBatch | None = None,
    ) -> Update:
        """Compute the gradients of every member on its batch, with every loss term multiplied by its sample's weight.

        The parameters do not change until `descend`. Gradient norms are computed for `norm_members`; those of the other
        members are zero. If it is None, no norms are reported. With `actor`, the losses of all networks but the critics
        are computed on that batch, with its weights.
        """

    def td_errors(self, batch: Batch, noise: Float[Tensor, "P count"]) -> Float[Tensor, "P B"]:
        """The absolute TD errors that `differentiate` would report, without gradients: for samplers such as LaBER."""
        del batch, noise
        raise UserError(
            f"{type(self).__name__} gives no TD errors of candidates; write its td_errors, or use samplers that do not "
            "choose among candidates"
        )

    @abstractmethod
    def descend(self) -> None:
        """One optimiser step along the gradients. On a GPU, feedback and `end_episode` may run at the same time."""

    def update(
        self,
        batch: Batch,
        weights: Float[Tensor, "P B"],
        noise: Float[Tensor, "P count"],
        norm_members: slice | None,
        actor: ActorBatch | None = None,
    ) -> Update:
        """`differentiate`, then `descend`. The training loop calls them separately, to do other work in between."""
        update = self.differentiate(batch, weights, noise, norm_members, actor)
        self.descend()
        return update

    @abstractmethod
    def trained(self) -> dict[str, Perceptron]:
        """The trained networks, by the names under which their gradient norms are reported."""

    @abstractmethod
    def metric(self) -> dict[str, list[tuple[Tensor, Tensor]]]:
        """Adam's diagonal metric for every trained network: the factors of the squared gradient components."""

    def prepare_norms(self) -> None:
        """Let the next passes compute norms in the agent's metric, with the scales that Adam has now."""
        scales = self.metric() if self.norm_metric == "adam" else {}
        for name, network in self.trained().items():
            network.metric = scales.get(name)

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, target networks, optimiser and exploration state. The tensors are not copies."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state into the agent's tensors."""
        own = self.state_dict()
        checks.same_layout("agent", own, state)
        for name, value in own.items():
            value.copy_(state[name])


def weighted(terms: Float[Tensor, "P *X B"], weights: Float[Tensor, "P B"]) -> Float[Tensor, "P"]:
    """The loss per member: the batch mean of the weighted terms, summed over the twin critics if there are any."""
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
    """The loss of the critics, and the absolute TD error, averaged over the critics."""
    target = torch.addcmul(reward, 1 - terminated, next_value, value=discount)
    error = values - (target.unsqueeze(1) if values.dim() == 3 else target)
    size = error.detach().abs()
    return weighted(error.square(), weights), size.mean(dim=1) if values.dim() == 3 else size


@fused
def norms_of(
    weights: Float[Tensor, "P B"],
    actor_weights: Float[Tensor, "P B"],
    tapped: Mapping[str, Float[Tensor, "K B"] | None],
) -> dict[str, Float[Tensor, "P B"]]:
    """d(i) per kind of network, summed over its K/P copies per member; empty if no norms were computed."""
    shares = {name: share for name, share in tapped.items() if share is not None}
    if not shares:
        return {}
    members, size = weights.shape
    undone = (size / weights).square()
    actor_undone = undone if actor_weights is weights else (size / actor_weights).square()
    return {
        name: (undone if name == CRITIC else actor_undone)
        * (share if len(share) == members else share.view(members, -1, size).sum(dim=1))
        for name, share in shares.items()
    }
