"""What a learner must do. It is told transitions and weights and knows nothing of how they were chosen."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aes_rl import checks
from aes_rl.gradients import Taps, squared_norms
from aes_rl.types import Signal, Signals


class Update(NamedTuple):
    """What an update tells: the losses it descended, and what samplers want to hear."""

    losses: dict[str, Float[Tensor, "P"]]
    signals: Signals


class AbstractAgent(ABC):
    """A learner of P members. Actions are scaled to [−1, 1]; all gradients of an update are at its first parameters."""

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

    @abstractmethod
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        """Forget exploration state of the members whose episode ended."""

    @abstractmethod
    def update(
        self, batch: Any, weights: Float[Tensor, "P B"], noise: Float[Tensor, "P count"], needs: Signal
    ) -> Update:
        """One gradient step of every member on its batch, each sample's loss terms multiplied by its weight."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, targets, optimiser and exploration state, as live tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state in place."""
        own = self.state_dict()
        checks.same_layout("agent", own, state)
        for name, value in own.items():
            value.copy_(state[name])


class Learner:
    """One network with its taps: runs it recorded, and differentiates a loss with respect to it alone."""

    def __init__(self, network: nn.Module):
        self.network = network
        self.parameters = list(network.parameters())
        self._taps = Taps(network)
        self._tap: Tensor | None = None

    def record(self, batch_shape: tuple[int, ...], is_wanted: bool) -> Any:
        """A context whose forward passes are tapped, if wanted."""
        self._tap = self._taps.tap(batch_shape) if is_wanted else None
        return nullcontext() if self._tap is None else self._taps.recording(self._tap)

    def differentiate(self, loss: Float[Tensor, ""]) -> Tensor | None:
        """Set the gradients of this network's parameters; the tap's gradient where the pass was recorded."""
        taps = [] if self._tap is None else [self._tap]
        gradients = torch.autograd.grad(loss, [*self.parameters, *taps])
        for parameter, gradient in zip(self.parameters, gradients, strict=False):
            parameter.grad = gradient
        return gradients[-1] if taps else None


def weighted(terms: Float[Tensor, "P *X B"], weights: Float[Tensor, "P B"]) -> Float[Tensor, "P"]:
    """Each member's loss: the batch mean of its weighted terms, summed over further axes such as the twin critics."""
    if terms.dim() == 3:
        terms = terms.sum(dim=1)
    return (terms * weights).mean(dim=-1)


def norms_of(tapped: Float[Tensor, "K B"] | None, weights: Float[Tensor, "P B"]) -> Float[Tensor, "P B"]:
    """d(i) of one kind of network, summed over its K/P copies a member (S2)."""
    assert tapped is not None
    copies = tapped.shape[0] // weights.shape[0]
    return squared_norms(tapped.view(weights.shape[0], copies, -1).sum(dim=1), weights)


def optimiser_state(optimiser: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> dict[str, Tensor]:
    """Adam's moments and step counts, by the parameters' order."""
    state = {}
    for number, parameter in enumerate(parameters):
        for name, value in optimiser.state[parameter].items():
            state[f"{number}.{name}"] = value
    return state


def prepare(optimiser: torch.optim.Optimizer) -> None:
    """Make Adam's state, which it otherwise makes in its first step."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            optimiser.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def copy_of(network: nn.Module, twin: nn.Module) -> list[Tensor]:
    """Start `twin`, a target network, at the same parameters; its parameters, which no gradient changes."""
    twin.load_state_dict(network.state_dict())
    return [parameter.requires_grad_(False) for parameter in twin.parameters()]


@torch.no_grad()
def follow(targets: list[Tensor], parameters: list[nn.Parameter], rate: float) -> None:
    """θ' ← θ' + rate·(θ − θ')."""
    torch._foreach_lerp_(targets, [parameter.detach() for parameter in parameters], rate)
