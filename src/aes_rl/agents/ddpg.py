"""Deep deterministic policy gradient (Lillicrap et al., 2015), without batch normalisation."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.agents.agent import METRICS, AbstractAgent, Metric, Update, critic_objective, norms_of, weighted
from aes_rl.agents.learner import Adam, Learner, copy_of, differentiate
from aes_rl.agents.networks import initialise
from aes_rl.backends import side_stream_of
from aes_rl.gradients.perceptron import Perceptron
from aes_rl.streams import Streams
from aes_rl.types import ActorBatch, Batch, Signals


@dataclass(frozen=True)
class DDPG:
    """Deep deterministic policy gradient (DDPG)."""

    hidden: tuple[int, int] = (400, 300)
    """Units of the two hidden layers."""
    critic_action_layer: Literal[0, 1] = 1
    """Layer at which the action enters the critic: 0 with the observation, 1 after the first hidden layer."""
    critic_first: bool = False
    """Whether the actor's gradient uses the critic after its update instead of before it, at the cost of a second
    forward and backward pass."""
    actor_learning_rate: float = 1e-4
    """Adam's learning rate for the actor."""
    critic_learning_rate: float = 1e-3
    """Adam's learning rate for the critic."""
    critic_weight_decay: float = 1e-2
    """L2 penalty on the critic's parameters; not included in the gradient norms."""
    discount: float = 0.99
    """γ: discount factor."""
    target_rate: float = 0.001
    """Fraction by which the target networks move towards the trained networks per update."""
    noise_pull: float = 0.15
    """θ of the Ornstein–Uhlenbeck exploration noise."""
    noise_scale: float = 0.2
    """σ of the Ornstein–Uhlenbeck exploration noise."""
    last_layer_bound: float = 3e-3
    """The last layers of actor and critic are initialised uniformly in ± this bound."""
    norm_metric: Metric = "euclidean"
    """Metric of the gradient norms that samplers learn from: "adam" scales every component as Adam's step does, so that
    a norm is the size of the sample's own step. It costs more per update (docs/gradients.md)."""
    batch_size: int = 64
    """|Ψ|: draws per update."""
    warm_up_steps: int | None = None
    """Environment steps with uniform actions before the first update; None is a tenth of the run, at most 25,000."""
    longest_warm_up: ClassVar[int] = 25_000
    """The shortest warm-up among those tested that learns HalfCheetah well (docs/decisions/warm-up.md)."""

    def __post_init__(self) -> None:
        checks.layers("hidden", self.hidden)
        checks.choice("critic_action_layer", self.critic_action_layer, (0, 1))
        for name in ("actor_learning_rate", "critic_learning_rate", "last_layer_bound"):
            checks.positive(name, getattr(self, name))
        for name in ("critic_weight_decay", "noise_pull", "noise_scale"):
            checks.non_negative(name, getattr(self, name))
        checks.fraction("discount", self.discount)
        checks.fraction("target_rate", self.target_rate)
        checks.choice("norm_metric", self.norm_metric, METRICS)
        checks.count("batch_size", self.batch_size)
        if self.warm_up_steps is not None:
            checks.count("warm_up_steps", self.warm_up_steps)


class DDPGAgent(AbstractAgent):
    """P deterministic actors and critics, with target networks for both."""

    def __init__(self, config: DDPG, observation_size: int, action_size: int, streams: Streams):
        members = len(streams.seeds)
        self.config = config
        self.norm_metric = config.norm_metric
        sizes = (observation_size, *config.hidden, action_size)
        critic_sizes = (observation_size, *config.hidden, 1)
        self.actor, self.target_actor = (Perceptron(members, sizes) for _ in range(2))
        self.critic, self.target_critic = (
            Perceptron(members, critic_sizes, action_size, config.critic_action_layer) for _ in range(2)
        )
        for network in (self.actor, self.target_actor, self.critic, self.target_critic):
            network.to(streams.device)
        next_layer = initialise(self.actor, streams, 0, config.last_layer_bound)
        initialise(self.critic, streams, next_layer, config.last_layer_bound)
        self._actor, self._critic = Learner(self.actor), Learner(self.critic)
        actor, critic = copy_of(self.actor, self.target_actor), copy_of(self.critic, self.target_critic)
        rate = config.target_rate
        self.actor_optimiser = Adam([self._actor.block], config.actor_learning_rate, 0.0, {0: actor}, rate)
        self.critic_optimiser = Adam(
            [self._critic.block], config.critic_learning_rate, config.critic_weight_decay, {0: critic}, rate
        )
        # Inputs of the actor's pass in `descend`. A captured CUDA graph reads these tensors themselves, not copies.
        self._actor_inputs: tuple[Tensor, Tensor] | None = None
        self._side_stream = side_stream_of(streams.device)
        self.exploration_noise = torch.zeros(members, action_size, device=streams.device)

    @override
    def noise_size(self, batch_size: int) -> int:
        return 0

    @override
    @torch.no_grad()
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        self.exploration_noise += self.config.noise_scale * noise - self.config.noise_pull * self.exploration_noise
        return (self.act_greedily(observation.unsqueeze(1)).squeeze(1) + self.exploration_noise).clamp(-1, 1)

    @override
    @torch.no_grad()
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        return torch.tanh(self.actor(observation))

    @override
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        self.exploration_noise *= (1 - ended).unsqueeze(-1)

    @override
    def differentiate(
        self,
        batch: Batch,
        weights: Float[Tensor, "P B"],
        noise: Float[Tensor, "P 0"],
        norm_members: slice | None,
        actor: ActorBatch | None = None,
    ) -> Update:
        del noise
        actor_batch, actor_weights = (batch, weights) if actor is None else actor
        self.prepare_norms()
        with self._side_stream:
            next_value = self._next_value(batch.next_observation)
            critic_tap = self._critic.tap(*weights.shape)
            values = self.critic(batch.observation, batch.action, critic_tap, norm_members).squeeze(-1)
            critic_loss, error = critic_objective(
                values, next_value, batch.reward, batch.terminated, weights, self.config.discount
            )
            of_critic = differentiate(critic_loss, critic_tap)

        actor_loss, of_actor = self._differentiate_actor(actor_batch.observation, actor_weights, norm_members)
        self._actor_inputs = (actor_batch.observation, actor_weights) if self.config.critic_first else None
        self._side_stream.join()

        losses = {"critic_loss": critic_loss.detach(), "actor_loss": actor_loss.detach()}
        norms = norms_of(weights, actor_weights, {"critic": of_critic, "actor": of_actor})
        return Update(losses, Signals(error, norms))

    @override
    @torch.no_grad()
    def td_errors(self, batch: Batch, noise: Float[Tensor, "P 0"]) -> Float[Tensor, "P B"]:
        del noise
        next_value = self._next_value(batch.next_observation)
        values = self.critic(batch.observation, batch.action).squeeze(-1)
        weights = torch.ones_like(batch.reward)
        return critic_objective(values, next_value, batch.reward, batch.terminated, weights, self.config.discount)[1]

    @torch.no_grad()
    def _next_value(self, observation: Float[Tensor, "P B O"]) -> Float[Tensor, "P B"]:
        """The value of the next state under the target networks."""
        value: Tensor = self.target_critic(observation, torch.tanh(self.target_actor(observation)))
        return value.squeeze(-1)

    def _differentiate_actor(
        self, observation: Float[Tensor, "P B O"], weights: Float[Tensor, "P B"], norm_members: slice | None
    ) -> tuple[Float[Tensor, "P"], Float[Tensor, "P B"] | None]:
        """Compute the actor's gradient for the current critic; return its loss and its gradient norms."""
        tap = self._actor.tap(*weights.shape)
        action = torch.tanh(self.actor(observation, None, tap, norm_members))
        loss = weighted(-self.critic(observation, action).squeeze(-1), weights)
        return loss, differentiate(loss, tap)

    @override
    def descend(self) -> None:
        self.critic_optimiser.step()
        if self._actor_inputs is not None:
            self._differentiate_actor(*self._actor_inputs, None)
        self.actor_optimiser.step()

    @override
    def trained(self) -> dict[str, Perceptron]:
        return {"actor": self.actor, "critic": self.critic}

    @override
    def metric(self) -> dict[str, list[tuple[Tensor, Tensor]]]:
        return {
            "actor": self.actor_optimiser.metric(0, self.actor),
            "critic": self.critic_optimiser.metric(0, self.critic),
        }

    @override
    def state_dict(self) -> dict[str, Tensor]:
        state = {f"{name}.{key}": value for name, value_of in self._networks() for key, value in value_of.items()}
        return state | {"noise": self.exploration_noise}

    def _networks(self) -> list[tuple[str, dict[str, Tensor]]]:
        return [
            ("actor", self.actor.state_dict()),
            ("critic", self.critic.state_dict()),
            ("target_actor", self.target_actor.state_dict()),
            ("target_critic", self.target_critic.state_dict()),
            ("actor_optimiser", self.actor_optimiser.state_dict()),
            ("critic_optimiser", self.critic_optimiser.state_dict()),
        ]
