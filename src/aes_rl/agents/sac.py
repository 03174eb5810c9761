"""Soft actor-critic (Haarnoja et al., 2018), with twin target critics or, as in AES-SAC, a state-value function."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from aes_rl import checks
from aes_rl.agents.agent import METRICS, AbstractAgent, Metric, Update, critic_objective, norms_of, weighted
from aes_rl.agents.learner import Adam, Learner, copy_of, differentiate
from aes_rl.agents.networks import TwinCritic, initialise
from aes_rl.backends import fused, side_stream_of
from aes_rl.gradients.perceptron import Perceptron
from aes_rl.streams import Streams
from aes_rl.types import ActorBatch, Batch, Signals

BLOCKS = {"actor": 0, "critic": 1, "temperature": 2, "value": 3}
"""Block numbers in the optimiser."""


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic (SAC)."""

    value_function: bool = False
    """Whether to train a state-value function with a target network, as in the paper's AES-SAC. Otherwise the twin
    critics have target networks."""
    critic_first: bool = False
    """Whether the actor's gradient uses the critics after their update instead of before it, at the cost of a second
    forward and backward pass."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers of every network."""
    learning_rate: float = 3e-4
    """Adam's learning rate for all networks and the temperature."""
    discount: float = 0.99
    """γ: discount factor."""
    target_rate: float = 0.005
    """Fraction by which the target networks move towards the trained networks per update."""
    initial_entropy_coefficient: float = 1.0
    """Initial temperature."""
    entropy_tuning: bool = True
    """Whether the temperature is tuned; if not, it stays at its initial value."""
    target_entropy: float | None = None
    """Entropy that the temperature is tuned for; None means minus the number of action dimensions."""
    policy_regularization: float = 0.0
    """Coefficient of a penalty on the squares of the policy's mean and log standard deviation in the actor's loss."""
    squashing_epsilon: float = 0.0
    """ε in log(1 − tanh² + ε), the tanh correction of the log density; 0 is exact. Many libraries use 1e-7 to 1e-6,
    with which the entropy term no longer penalises actions very close to ±1."""
    reward_scale: float = 1.0
    """Factor of every reward in the critics' targets."""
    norm_metric: Metric = "euclidean"
    """Metric of the gradient norms that samplers learn from: "adam" scales every component as Adam's step does, so that
    a norm is the size of the sample's own step. It costs more per update (docs/gradients.md)."""
    batch_size: int = 256
    """|Ψ|: draws per update."""
    warm_up_steps: int | None = None
    """Environment steps with uniform actions before the first update; None is a tenth of the run, at most 10,000."""
    longest_warm_up: ClassVar[int] = 10_000
    """The shortest warm-up among those tested that learns HalfCheetah well (docs/decisions/warm-up.md)."""

    def __post_init__(self) -> None:
        checks.layers("hidden", self.hidden)
        checks.positive("learning_rate", self.learning_rate)
        checks.positive("reward_scale", self.reward_scale)
        if self.target_entropy is not None:
            checks.number("target_entropy", self.target_entropy, "or None, minus the number of action dimensions")
        checks.fraction("discount", self.discount)
        checks.fraction("target_rate", self.target_rate)
        checks.positive("initial_entropy_coefficient", self.initial_entropy_coefficient)
        for name in ("policy_regularization", "squashing_epsilon"):
            checks.non_negative(name, getattr(self, name))
        checks.choice("norm_metric", self.norm_metric, METRICS)
        checks.count("batch_size", self.batch_size)
        if self.warm_up_steps is not None:
            checks.count("warm_up_steps", self.warm_up_steps)


class ActorPass(NamedTuple):
    """The results of the actor's pass."""

    loss: Float[Tensor, "P"]
    norms: Float[Tensor, "P B"] | None
    slope: Float[Tensor, "P 1"]
    """Derivative of the temperature loss with respect to the log temperature."""
    values: Float[Tensor, "P 2 B"]
    """Values of the sampled actions under both critics."""
    log_probability: Float[Tensor, "P B"]


class SACAgent(AbstractAgent):
    """P stochastic actors with twin critics, and a state-value function if configured."""

    def __init__(self, config: SAC, observation_size: int, action_size: int, streams: Streams):
        members = len(streams.seeds)
        self.config = config
        self.norm_metric = config.norm_metric
        self.observation_size, self.action_size = observation_size, action_size
        self.target_entropy = -float(action_size) if config.target_entropy is None else config.target_entropy
        self.actor = Perceptron(members, [observation_size, *config.hidden, 2 * action_size])
        self.critic = TwinCritic(members, observation_size, action_size, config.hidden)
        self.target: Perceptron | TwinCritic
        if config.value_function:
            self.value = Perceptron(members, [observation_size, *config.hidden, 1])
            self.target = Perceptron(members, [observation_size, *config.hidden, 1])
        else:
            self.target = TwinCritic(members, observation_size, action_size, config.hidden)
        for network in self._networks().values():
            network.to(streams.device)
        next_layer = initialise(self.critic, streams, initialise(self.actor, streams, 0))
        if config.value_function:
            initialise(self.value, streams, next_layer)
            self._value = Learner(self.value)
        self._side_stream = side_stream_of(streams.device)
        self._actor, self._critic = Learner(self.actor), Learner(self.critic)
        target = copy_of(self.value if config.value_function else self.critic, self.target)
        start = math.log(config.initial_entropy_coefficient)
        self.log_temperature = torch.full((members, 1), start, device=streams.device)
        blocks = [self._actor.block, self._critic.block, self.log_temperature]
        if config.value_function:
            blocks.append(self._value.block)
        followed = BLOCKS["value" if config.value_function else "critic"]
        self.optimiser = Adam(blocks, config.learning_rate, 0.0, {followed: target}, config.target_rate)
        self._other_blocks = [number for number in range(len(blocks)) if number != BLOCKS["critic"]]
        # Inputs of the actor's pass in `descend`. A captured CUDA graph reads these tensors themselves, not copies.
        self._actor_inputs: tuple[Tensor, Tensor, Tensor] | None = None

    @override
    def noise_size(self, batch_size: int) -> int:
        return (1 if self.config.value_function else 2) * batch_size * self.action_size

    @override
    @torch.no_grad()
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        return exploring_action(self.actor(observation.unsqueeze(1)).squeeze(1), noise)

    @override
    @torch.no_grad()
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        return torch.tanh(self.actor(observation)[..., : self.action_size])

    @override
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        del ended

    @override
    def differentiate(
        self,
        batch: Batch,
        weights: Float[Tensor, "P B"],
        noise: Float[Tensor, "P count"],
        norm_members: slice | None,
        actor: ActorBatch | None = None,
    ) -> Update:
        config, shape = self.config, weights.shape
        actor_batch, actor_weights = (batch, weights) if actor is None else actor
        observation = actor_batch.observation
        self.prepare_norms()
        draws = noise.view(*shape, -1, self.action_size)

        with self._side_stream:
            with torch.no_grad():
                next_value = self._next_value(batch.next_observation, draws)
            critic_tap = self._critic.tap(2 * shape[0], shape[1])
            estimates = self.critic(batch.observation, batch.action, critic_tap, norm_members)
            reward = batch.reward if config.reward_scale == 1 else config.reward_scale * batch.reward
            critic_loss, error = critic_objective(
                estimates, next_value, reward, batch.terminated, weights, config.discount
            )
            tapped = {"critic": differentiate(critic_loss, critic_tap)}

        policy_pass = self._differentiate_actor(observation, draws[:, :, 0], actor_weights, norm_members)
        self._actor_inputs = (observation, draws[:, :, 0], actor_weights) if config.critic_first else None
        tapped["actor"] = policy_pass.norms
        slope = policy_pass.slope if config.entropy_tuning else torch.zeros_like(policy_pass.slope)
        self.log_temperature.grad = slope
        losses = {"actor_loss": policy_pass.loss, "temperature_loss": (self.log_temperature * slope).squeeze(-1)}
        if config.value_function:
            value_tap = self._value.tap(*shape)
            value = self.value(observation, None, value_tap, norm_members).squeeze(-1)
            wanted = soft_value(policy_pass.values.detach(), policy_pass.log_probability.detach(), self.log_temperature)
            losses["value_loss"] = weighted((value - wanted).square(), actor_weights)
            tapped["value"] = differentiate(losses["value_loss"], value_tap)
        self._side_stream.join()

        losses["critic_loss"] = critic_loss
        signals = Signals(error, norms_of(weights, actor_weights, tapped))
        return Update({name: loss.detach() for name, loss in losses.items()}, signals)

    @override
    @torch.no_grad()
    def td_errors(self, batch: Batch, noise: Float[Tensor, "P count"]) -> Float[Tensor, "P B"]:
        next_value = self._next_value(batch.next_observation, noise.view(*batch.reward.shape, -1, self.action_size))
        reward, values = self.config.reward_scale * batch.reward, self.critic(batch.observation, batch.action)
        weights = torch.ones_like(reward)
        return critic_objective(values, next_value, reward, batch.terminated, weights, self.config.discount)[1]

    def _differentiate_actor(
        self,
        observation: Float[Tensor, "P B O"],
        draws: Float[Tensor, "P B A"],
        weights: Float[Tensor, "P B"],
        norm_members: slice | None,
    ) -> ActorPass:
        """Compute the actor's gradient for the current critics."""
        tap = self._actor.tap(*weights.shape)
        head = self.actor(observation, None, tap, norm_members)
        action, log_probability = squash(head, draws, self.config.squashing_epsilon)
        values = self.critic(observation, action)
        loss, slope = actor_objective(
            values, log_probability, head, self.log_temperature, weights, self.target_entropy,
            self.config.policy_regularization,
        )  # fmt: skip
        return ActorPass(loss, differentiate(loss, tap), slope, values, log_probability)

    @override
    def descend(self) -> None:
        if self._actor_inputs is None:
            self.optimiser.step()
            return
        self.optimiser.step([BLOCKS["critic"]])
        self._differentiate_actor(*self._actor_inputs, None)
        self.optimiser.step(self._other_blocks)

    @override
    def trained(self) -> dict[str, Perceptron]:
        networks = {"actor": self.actor, "critic": self.critic.body}
        return networks | ({"value": self.value} if self.config.value_function else {})

    @override
    def metric(self) -> dict[str, list[tuple[Tensor, Tensor]]]:
        return {name: self.optimiser.metric(BLOCKS[name], network) for name, network in self.trained().items()}

    @override
    def state_dict(self) -> dict[str, Tensor]:
        parts = {name: network.state_dict() for name, network in self._networks().items()}
        parts["optimiser"] = self.optimiser.state_dict()
        state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
        return state | {"log_temperature": self.log_temperature}

    def _networks(self) -> dict[str, torch.nn.Module]:
        networks = {"actor": self.actor, "critic": self.critic, "target": self.target}
        return networks | ({"value": self.value} if self.config.value_function else {})

    def _next_value(
        self, observation: Float[Tensor, "P B O"], draws: Float[Tensor, "P B two A"]
    ) -> Float[Tensor, "P B"]:
        """The soft value of the next state under the target networks."""
        if self.config.value_function:
            value: Tensor = self.target(observation)
            return value.squeeze(-1)
        action, log_probability = squash(self.actor(observation), draws[:, :, 1], self.config.squashing_epsilon)
        return soft_value(self.target(observation, action), log_probability, self.log_temperature)


def policy(head: Float[Tensor, "*batch 2A"]) -> tuple[Float[Tensor, "*batch A"], Float[Tensor, "*batch A"]]:
    """Mean and log standard deviation of the action before tanh, from the actor's output."""
    mean, log_deviation = head.chunk(2, dim=-1)
    return mean, log_deviation.clamp(-20, 2)


@fused
def exploring_action(head: Float[Tensor, "P 2A"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
    """The tanh of a Gaussian sample."""
    mean, log_deviation = policy(head)
    return torch.tanh(mean + log_deviation.exp() * noise)


@fused
def squash(
    head: Float[Tensor, "P B 2A"], noise: Float[Tensor, "P B A"], epsilon: float
) -> tuple[Float[Tensor, "P B A"], Float[Tensor, "P B"]]:
    """The tanh of a Gaussian sample, and its log density: that of the Gaussian minus Σ log(1 − tanh² + ε)."""
    mean, log_deviation = policy(head)
    raw = torch.addcmul(mean, log_deviation.exp(), noise)
    action = torch.tanh(raw)
    of_gaussian = -torch.addcmul(log_deviation, noise, noise, value=0.5).sum(dim=-1)
    if epsilon:
        of_squashing = torch.log(1 - action.square() + epsilon).sum(dim=-1)
        return action, of_gaussian - of_squashing - mean.shape[-1] * 0.5 * math.log(2 * math.pi)
    # log(1 − tanh²) = 2·(log 2 − raw − softplus(−2·raw)), which is numerically stable
    of_squashing = -2 * (raw + softplus(-2 * raw)).sum(dim=-1)
    constant = mean.shape[-1] * (2 * math.log(2) + 0.5 * math.log(2 * math.pi))
    return action, of_gaussian - of_squashing - constant


@fused
def soft_value(
    values: Float[Tensor, "P 2 B"], log_probability: Float[Tensor, "P B"], log_temperature: Float[Tensor, "P 1"]
) -> Float[Tensor, "P B"]:
    """The smaller value of the two critics minus temperature · log probability of the action."""
    return values.amin(dim=1) - log_temperature.exp() * log_probability


@fused
def actor_objective(
    values: Float[Tensor, "P 2 B"],
    log_probability: Float[Tensor, "P B"],
    head: Float[Tensor, "P B 2A"],
    log_temperature: Float[Tensor, "P 1"],
    weights: Float[Tensor, "P B"],
    target_entropy: float,
    regularization: float,
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P 1"]]:
    """The actor's loss, and the derivative of the temperature loss with respect to the log temperature."""
    terms = log_temperature.exp() * log_probability - values.amin(dim=1)
    if regularization:
        mean, log_deviation = policy(head)
        terms = terms + regularization * (mean.square() + log_deviation.square()).mean(dim=-1)
    slope = weighted(-target_entropy - log_probability.detach(), weights)
    return weighted(terms, weights), slope.unsqueeze(-1)
