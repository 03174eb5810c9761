"""The off-policy policy gradient on whole trajectories: the setting of the paper's theory.

An item of the buffer is a trajectory with the probabilities of its actions under the behaviour policy. Its term in the
gradient is ω(τ)·∇log p(τ|π)·R(τ), where ω is the product of the importance ratios of its steps. The networks are small,
and the gradient of every item is computed exactly.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from aes_rl import checks


@dataclass(frozen=True)
class Trajectory:
    """Off-policy policy gradient on whole trajectories."""

    hidden: tuple[int, ...] = (16,)
    """Units of the policy's hidden layers."""
    learning_rate: float = 1e-3
    """Learning rate of plain gradient ascent."""
    discount: float = 0.99
    """γ: discount factor."""
    horizon: int = 20
    """H: maximum number of steps per trajectory."""
    batch_size: int = 8
    """|Ψ|: items drawn per update."""
    policy_floor: float = 0.05
    """β: minimum probability of every discrete action, which bounds the ratios; unused for continuous actions."""
    standard_deviation: float = 0.5
    """Standard deviation of continuous actions."""
    items: Literal["trajectories", "pairs"] = "trajectories"
    """What an item is: a trajectory, or a state–action pair with the return from that step on."""
    ratio_clip: float | None = None
    """Maximum importance ratio per step, after `ratio_scale`; None: no limit. It lowers the variance and adds bias."""
    ratio_scale: float = 1.0
    """Exponent of the importance ratio per step, in [0, 1]. Below 1 it lowers the variance and adds bias."""
    has_baseline: bool = False
    """Whether the mean return of the buffer is subtracted from every return."""

    def __post_init__(self) -> None:
        for name in ("horizon", "batch_size"):
            checks.count(name, getattr(self, name))
        for name in ("learning_rate", "standard_deviation"):
            checks.positive(name, getattr(self, name))
        for name in ("discount", "ratio_scale"):
            checks.fraction(name, getattr(self, name))
        checks.floor(self.policy_floor)
        checks.choice("items", self.items, ("trajectories", "pairs"))
        if self.ratio_clip is not None:
            checks.positive("ratio_clip", self.ratio_clip)


class Items(NamedTuple):
    """Items: trajectories of H steps, or state–action pairs as trajectories of one step."""

    observation: Float[Tensor, "n H O"]
    action: Float[Tensor, "n H A"]
    """Discrete actions are one-hot."""
    log_behaviour: Float[Tensor, "n H"]
    """log μ(a|s) under the policy that took the action."""
    step_mask: Float[Tensor, "n H"]
    """1 for steps of the trajectory, 0 after its end."""
    discounted_return: Float[Tensor, "n"]
    """The discounted return from the item's first step."""


class TrajectoryAgent:
    """A stochastic policy and the gradients of stored items with respect to its parameters."""

    def __init__(self, config: Trajectory, observation_size: int, action_size: int, is_discrete: bool, seed: int):
        if is_discrete and config.policy_floor * action_size >= 1:
            raise ValueError(
                f"policy_floor is {config.policy_floor} with {action_size} actions; it must stay below 1/{action_size}"
            )
        self.config, self.is_discrete, self.action_size = config, is_discrete, action_size
        sizes = [observation_size, *config.hidden]
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for size_in, size_out in zip(sizes, [*config.hidden, action_size], strict=True):
            layer = nn.Linear(size_in, size_out, dtype=torch.float64)
            bound = 1 / math.sqrt(size_in)
            for parameter in layer.parameters():
                parameter.data.uniform_(-bound, bound, generator=generator)
            layers += [layer, nn.Tanh()]
        self._network = nn.Sequential(*layers[:-1])
        self.parameters = {name: parameter.detach() for name, parameter in self._network.named_parameters()}
        self._gradients = vmap(grad(self._log_likelihood), in_dims=(None, 0))

    def act(self, observation: Float[Tensor, "O"], generator: torch.Generator) -> tuple[Float[Tensor, "A"], float]:
        """An action (one-hot if discrete) and its log probability log μ(a|s)."""
        head: Tensor = functional_call(self._network, self.parameters, (observation,))
        if self.is_discrete:
            probabilities = self._probabilities(head)
            chosen = int(torch.multinomial(probabilities, 1, generator=generator))
            action = torch.zeros(self.action_size, dtype=torch.float64)
            action[chosen] = 1
        else:
            noise = torch.randn(self.action_size, generator=generator, dtype=torch.float64)
            action = head + self.config.standard_deviation * noise
        return action, float(self._log_probability(self.parameters, observation, action))

    def gradients(self, items: Items, baseline: float = 0.0) -> Float[Tensor, "n D"]:
        """ω·∇log p(τ|π)·(R − baseline) of every item, as one flat vector each; ω is a constant factor."""
        parts = self._gradients(self.parameters, items)
        flat = torch.cat([part.reshape(len(items.discounted_return), -1) for part in parts.values()], dim=1)
        factor = self.ratios(items) * (items.discounted_return - (baseline if self.config.has_baseline else 0.0))
        return flat * factor.unsqueeze(1)

    def ratios(self, items: Items) -> Float[Tensor, "n"]:
        """ω of every item: the product of its step ratios, each with exponent `ratio_scale`, then clipped."""
        logs = vmap(self._step_logs, in_dims=(None, 0))(self.parameters, items) - items.log_behaviour
        logs = self.config.ratio_scale * logs
        if self.config.ratio_clip is not None:
            logs = logs.clamp(max=math.log(self.config.ratio_clip))
        return (logs * items.step_mask).sum(dim=1).exp()

    def ascend(self, gradient: Float[Tensor, "D"]) -> None:
        """One step along an estimate of ∇J."""
        if not bool(gradient.isfinite().all()):
            raise ValueError(
                "the policy gradient is not finite: the products of ratios have exploded; lower learning_rate or "
                "horizon, or set ratio_clip"
            )
        parts = torch.split(gradient, [parameter.numel() for parameter in self.parameters.values()])
        for parameter, part in zip(self.parameters.values(), parts, strict=True):
            parameter += self.config.learning_rate * part.view_as(parameter)

    def _log_likelihood(self, parameters: dict[str, Tensor], item: Items) -> Tensor:
        """Log p(τ|π) without the dynamics of the environment, which do not depend on the parameters."""
        return (self._step_logs(parameters, item) * item.step_mask).sum()

    def _step_logs(self, parameters: dict[str, Tensor], item: Items) -> Float[Tensor, "H"]:
        return self._log_probability(parameters, item.observation, item.action)

    def _log_probability(
        self, parameters: dict[str, Tensor], observation: Float[Tensor, "*H O"], action: Float[Tensor, "*H A"]
    ) -> Float[Tensor, "*H"]:
        head: Tensor = functional_call(self._network, parameters, (observation,))
        if self.is_discrete:
            # After the end of a trajectory the action is all zeros; its probability is set to 1.
            return ((self._probabilities(head) * action).sum(dim=-1) + 1 - action.sum(dim=-1)).log()
        scaled = (action - head) / self.config.standard_deviation
        constant = math.log(self.config.standard_deviation * math.sqrt(2 * math.pi))
        return -(0.5 * scaled.square() + constant).sum(dim=-1)

    def _probabilities(self, head: Float[Tensor, "*H A"]) -> Float[Tensor, "*H A"]:
        floor = self.config.policy_floor
        return (1 - floor * self.action_size) * head.softmax(dim=-1) + floor
