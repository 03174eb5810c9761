"""Soft actor-critic (Haarnoja et al., 2018), in today's form and in the paper's, with a state-value function."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from aes_rl import checks
from aes_rl.agents.agent import (
    AbstractAgent,
    Learner,
    Update,
    copy_of,
    follow,
    norms_of,
    optimiser_state,
    prepare,
    weighted,
)
from aes_rl.agents.networks import TwinCritic, initialise, perceptron
from aes_rl.streams import Streams
from aes_rl.types import Signal, Signals


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic with automatic entropy tuning."""

    value_function: bool = False
    """Whether a state-value function with a target copy stands between critics and actor, as in the paper's AES-SAC;
    without it the twin critics have target copies."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers of every network."""
    learning_rate: float = 3e-4
    """Adam's step for all networks and the temperature."""
    discount: float = 0.99
    """γ."""
    target_rate: float = 0.005
    """How far the target networks move each update."""
    initial_entropy_coefficient: float = 1.0
    """The temperature at the start."""
    target_entropy: float | None = None
    """What the temperature is tuned to; None means minus the number of action dimensions."""
    policy_regularization: float = 0.0
    """Penalty on the squares of the policy's mean and log standard deviation, inside the actor's loss."""
    reward_scale: float = 1.0
    """Multiplies every reward in the critics' targets."""
    batch_size: int = 256
    """|Ψ|: draws an update."""
    warm_up_steps: int = 1000
    """Environment steps with uniform actions before the first update."""

    def __post_init__(self) -> None:
        checks.fraction("discount", self.discount)
        checks.fraction("target_rate", self.target_rate)
        checks.positive("initial_entropy_coefficient", self.initial_entropy_coefficient)
        checks.non_negative("policy_regularization", self.policy_regularization)
        checks.count("batch_size", self.batch_size)
        checks.count("warm_up_steps", self.warm_up_steps)


class SACAgent(AbstractAgent):
    """P stochastic actors with twin critics each, and a state-value function if configured."""

    config_type: ClassVar = SAC

    def __init__(self, config: SAC, observation_size: int, action_size: int, streams: Streams):
        members = len(streams.seeds)
        self.config = config
        self._action_size = action_size
        self._target_entropy = -float(action_size) if config.target_entropy is None else config.target_entropy
        self.actor = perceptron(members, [observation_size, *config.hidden, 2 * action_size])
        self.critic = TwinCritic(members, observation_size, action_size, config.hidden)
        self.target: torch.nn.Module
        if config.value_function:
            self.value = perceptron(members, [observation_size, *config.hidden, 1])
            self.target = perceptron(members, [observation_size, *config.hidden, 1])
        else:
            self.target = TwinCritic(members, observation_size, action_size, config.hidden)
        for network in self._networks().values():
            network.to(streams.device)
        next_layer = initialise(self.critic, streams, initialise(self.actor, streams, 0))
        if config.value_function:
            initialise(self.value, streams, next_layer)
            self._value = Learner(self.value)
        self._actor, self._critic = Learner(self.actor), Learner(self.critic)
        self._followed = self._value.parameters if config.value_function else self._critic.parameters
        self._targets = copy_of(self.value if config.value_function else self.critic, self.target)
        start = math.log(config.initial_entropy_coefficient)
        self.log_temperature = torch.full((members, 1), start, device=streams.device, requires_grad=True)
        self._trained: list[Tensor] = [*self._actor.parameters, *self._critic.parameters, self.log_temperature]
        if config.value_function:
            self._trained += self._value.parameters
        self._optimiser = torch.optim.Adam(self._trained, lr=config.learning_rate, fused=True)
        prepare(self._optimiser)

    @override
    def noise_size(self, batch_size: int) -> int:
        return (1 if self.config.value_function else 2) * batch_size * self._action_size

    @override
    @torch.no_grad()
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        action, _, _ = self._sample(observation.unsqueeze(1), noise.unsqueeze(1))
        return action.squeeze(1)

    @override
    @torch.no_grad()
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        mean, _ = self.actor(observation).chunk(2, dim=-1)
        return torch.tanh(mean)

    @override
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        del ended

    @override
    def update(
        self, batch: Any, weights: Float[Tensor, "P B"], noise: Float[Tensor, "P count"], needs: Signal
    ) -> Update:
        wants_norms = Signal.GRADIENT_NORM in needs
        shape = weights.shape
        draws = noise.view(*shape, -1, self._action_size)
        temperature = self.log_temperature.detach().exp()

        with self._actor.record(shape, wants_norms):
            action, log_probability, spread = self._sample(batch.observation, draws[:, :, 0])
        best_value = self.critic(batch.observation, action).amin(dim=1)
        actor_terms = temperature * log_probability - best_value
        if self.config.policy_regularization:
            actor_terms = actor_terms + self.config.policy_regularization * spread
        actor_loss = weighted(actor_terms, weights)
        surprise = log_probability.detach() + self._target_entropy
        temperature_loss = weighted(-self.log_temperature * surprise, weights)

        with torch.no_grad():
            next_value = self._next_value(batch.next_observation, draws, temperature)
            reward = self.config.reward_scale * batch.reward
            target = reward + self.config.discount * (1 - batch.terminated) * next_value
        with self._critic.record((2 * shape[0], shape[1]), wants_norms):
            error = self.critic(batch.observation, batch.action) - target.unsqueeze(1)
        critic_loss = weighted(error.square(), weights)

        taps = {
            "actor": self._actor.differentiate(actor_loss.sum()),
            "critic": self._critic.differentiate(critic_loss.sum()),
        }
        losses = {"actor_loss": actor_loss, "critic_loss": critic_loss, "temperature_loss": temperature_loss}
        if self.config.value_function:
            with self._value.record(shape, wants_norms):
                value = self.value(batch.observation).squeeze(-1)
            soft_value = best_value.detach() - temperature * log_probability.detach()
            losses["value_loss"] = weighted((value - soft_value).square(), weights)
            taps["value"] = self._value.differentiate(losses["value_loss"].sum())
        (self.log_temperature.grad,) = torch.autograd.grad(temperature_loss.sum(), [self.log_temperature])
        self._optimiser.step()
        follow(self._targets, self._followed, self.config.target_rate)

        norms = {name: norms_of(tapped, weights) for name, tapped in taps.items()} if wants_norms else {}
        signals = Signals(error.detach().abs().mean(dim=1), norms)
        return Update({name: loss.detach() for name, loss in losses.items()}, signals)

    @override
    def state_dict(self) -> dict[str, Tensor]:
        parts = {name: network.state_dict() for name, network in self._networks().items()}
        parts["optimiser"] = optimiser_state(self._optimiser, self._trained)
        state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
        return state | {"log_temperature": self.log_temperature.detach()}

    def _networks(self) -> dict[str, torch.nn.Module]:
        networks = {"actor": self.actor, "critic": self.critic, "target": self.target}
        return networks | ({"value": self.value} if self.config.value_function else {})

    def _next_value(
        self, observation: Float[Tensor, "P B O"], draws: Float[Tensor, "P B two A"], temperature: Float[Tensor, "P 1"]
    ) -> Float[Tensor, "P B"]:
        """The soft value of the next state, by the target networks."""
        if self.config.value_function:
            value: Tensor = self.target(observation)
            return value.squeeze(-1)
        action, log_probability, _ = self._sample(observation, draws[:, :, 1])
        best_value: Tensor = self.target(observation, action).amin(dim=1)
        return best_value - temperature * log_probability

    def _sample(
        self, observation: Float[Tensor, "P B O"], noise: Float[Tensor, "P B A"]
    ) -> tuple[Float[Tensor, "P B A"], Float[Tensor, "P B"], Float[Tensor, "P B"]]:
        """A squashed Gaussian action, its log probability, and the squares that the regularisation penalises."""
        mean, log_deviation = self.actor(observation).chunk(2, dim=-1)
        log_deviation = log_deviation.clamp(-20, 2)
        raw = mean + log_deviation.exp() * noise
        gaussian = -0.5 * noise.square() - log_deviation - 0.5 * math.log(2 * math.pi)
        # log(1 − tanh²) written so that it neither cancels nor overflows
        squashing = 2 * (math.log(2) - raw - softplus(-2 * raw))
        spread = (mean.square() + log_deviation.square()).mean(dim=-1)
        return torch.tanh(raw), (gaussian - squashing).sum(dim=-1), spread
