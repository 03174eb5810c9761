"""Soft actor-critic as products and compiled loops; the reference is `aes_rl.agents.sac`."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.compiled import loops
from aes_rl.agents.compiled.agent import AbstractProgram, CompiledAdam, CompiledAgent, Rows, as_update
from aes_rl.agents.compiled.network import Floats, Pass
from aes_rl.agents.networks import TwinCritic
from aes_rl.agents.sac import BLOCKS, SAC, SACAgent
from aes_rl.streams import Streams


def make_sac(config: SAC, observation_size: int, action_size: int, streams: Streams) -> AbstractAgent:
    """The compiled agent; in float64 the reference itself."""
    agent = SACAgent(config, observation_size, action_size, streams)
    if agent.log_temperature.dtype != torch.float32:
        return agent
    acting = Pass(agent.actor, 1)

    def act(observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        acting.inputs[:, 0] = observation.numpy()
        acting.forward()
        action = np.empty((len(observation), action_size), np.float32)
        loops.explore(acting.output, noise.numpy(), action)
        return torch.from_numpy(action)

    return CompiledAgent(agent, lambda batch_size: SACProgram(agent, batch_size), act, explores_with_state=False)


class SACProgram(AbstractProgram):
    """An update of SAC. Passes through the same network are one pass.

    The actor's rows are the observations, then the next observations; the critics' rows are the stored actions, then
    the policy's.
    """

    def __init__(self, agent: SACAgent, batch_size: int):
        config, members, size = agent.config, len(agent.log_temperature), batch_size
        self._config, self._size = config, size
        self._observation_size, self._action_size = agent.observation_size, agent.action_size
        self._target_entropy = np.float32(agent.target_entropy)
        self._discount, self._reward_scale = np.float32(config.discount), np.float32(config.reward_scale)
        self._epsilon, self._regularization = (
            np.float32(config.squashing_epsilon),
            np.float32(config.policy_regularization),
        )
        policies = 1 if config.value_function else 2
        self._actor = Pass(agent.actor, policies * size, trained=size, differentiated=size)
        self._critic = Pass(agent.critic.body, 2 * size, trained=size, differentiated=2 * size)
        target = agent.target.body if isinstance(agent.target, TwinCritic) else agent.target
        self._target = Pass(target, size)
        self._value = Pass(agent.value, size, trained=size, differentiated=size) if config.value_function else None
        self._second = Pass(agent.critic.body, size, differentiated=size) if config.critic_first else None
        """The policy's actions under the critics that have just been updated."""
        shape = (members, policies * size)
        self._action, self._deviation = (np.zeros((*shape, agent.action_size), np.float32) for _ in range(2))
        self._log_probability = np.zeros(shape, np.float32)
        self._soft_value = np.zeros((members, size), np.float32)
        self._no_norms = np.zeros((members, size), np.float32)
        self._log_temperature = agent.log_temperature.numpy()
        self._slope = np.zeros((members, 1), np.float32)
        agent.log_temperature.grad = torch.from_numpy(self._slope)
        self._adam = CompiledAdam(agent.optimiser)
        self._others = tuple(number for number in range(len(agent.trained()) + 1) if number != BLOCKS["critic"])
        self._weights, self._draws = self._no_norms, np.zeros((members, size, policies, agent.action_size), np.float32)
        """Weights of the actor's batch and action noise of the current update."""

    @override
    def differentiate(self, critic: Rows, actor: Rows, noise: Floats, first: int, last: int) -> Update:
        size, (members, _) = self._size, critic.weights.shape
        self._weights, self._draws = actor.weights, noise.reshape(members, size, -1, self._action_size)
        loss = np.empty((4, members), np.float32)
        norms = np.zeros((3, members, size), np.float32)
        td_error = np.empty((members, size), np.float32)

        self._sample_actions(critic.rows, actor.rows)
        self._evaluate_actions(critic.rows, actor.rows)
        next_value = self._next_value(critic.rows)
        loops.critic_objective(
            self._critic.output, next_value, critic.rows, critic.weights, self._discount, self._reward_scale,
            self._critic.gradient, td_error, loss[0],
        )  # fmt: skip
        self._actor_objective(self._critic, size, loss[1])
        self._critic.backward(norms[0], first, last)
        self._actor_gradient(self._critic.of_late, loss[1], norms[1], first, last)

        losses = {"actor_loss": loss[1], "temperature_loss": self._log_temperature[:, 0] * self._slope[:, 0]}
        of_network = {"critic": norms[0], "actor": norms[1]}
        if self._value is not None:
            self._value_gradient(self._value, actor.rows, loss[2], norms[2], first, last)
            losses["value_loss"], of_network["value"] = loss[2], norms[2]
        losses["critic_loss"] = loss[0]
        return as_update(losses, td_error, critic, actor, of_network, first < last)

    @override
    def descend(self) -> None:
        if self._second is None:
            self._adam.step()
            return
        self._adam.step((BLOCKS["critic"],))
        second, critic, size = self._second, self._critic, self._size
        loops.copy_columns(critic.inputs, size, 0, critic.inputs.shape[2], second.inputs, 0, 0, size)
        second.forward()
        loss = np.empty(len(self._slope), np.float32)
        self._actor_objective(second, 0, loss)
        second.backward(self._no_norms, 0, 0)
        self._actor_gradient(second.of_late, loss, self._no_norms, 0, 0)
        self._adam.step(self._others)

    def _sample_actions(self, critic_rows: Floats, actor_rows: Floats) -> None:
        """Actions of the policy in the states and, unless there is a value function, in the critics' next states."""
        actor, size, width = self._actor, self._size, self._observation_size
        loops.copy_columns(actor_rows, 0, 0, width, actor.inputs, 0, 0, size)
        if self._value is None:
            loops.copy_columns(critic_rows, 0, width + self._action_size, width, actor.inputs, size, 0, size)
        actor.forward()
        loops.squash(actor.output, self._draws, self._epsilon, self._action, self._deviation, self._log_probability)

    def _evaluate_actions(self, critic_rows: Floats, actor_rows: Floats) -> None:
        """Values of the stored and of the sampled actions."""
        inputs, size, width = self._critic.inputs, self._size, self._observation_size
        loops.copy_columns(critic_rows, 0, 0, width + self._action_size, inputs, 0, 0, size)
        loops.copy_columns(actor_rows, 0, 0, width, inputs, size, 0, size)
        loops.copy_columns(self._action, 0, 0, self._action_size, inputs, size, width, size)
        self._critic.forward()

    def _next_value(self, rows: Floats) -> Floats:
        """The soft value of the next state under the target networks."""
        target, size, width = self._target, self._size, self._observation_size
        loops.copy_columns(rows, 0, width + self._action_size, width, target.inputs, 0, 0, size)
        if self._value is not None:
            target.forward()
            return target.output[..., 0]
        loops.copy_columns(self._action, size, 0, self._action_size, target.inputs, 0, width, size)
        target.forward()
        value = self._soft_value
        loops.soft_value(target.output, 0, self._log_probability, size, self._log_temperature, value)
        return value

    def _actor_objective(self, critic: Pass, first_row: int, loss: Floats) -> None:
        """The actor's loss, and its derivative with respect to the values of its actions."""
        loops.stochastic_objective(
            critic.output, first_row, self._log_probability, self._weights, self._log_temperature,
            self._target_entropy, critic.gradient, loss, self._slope,
        )  # fmt: skip
        if not self._config.entropy_tuning:
            self._slope.fill(0)

    def _actor_gradient(self, of_action: Floats, loss: Floats, norms: Floats, first: int, last: int) -> None:
        """The actor's gradient, from the derivative with respect to its actions."""
        actor = self._actor
        loops.policy_gradient(
            of_action, actor.output, self._action, self._deviation, self._draws, self._weights, self._log_temperature,
            self._epsilon, self._regularization, actor.gradient, loss,
        )  # fmt: skip
        actor.backward(norms, first, last)

    def _value_gradient(self, value: Pass, rows: Floats, loss: Floats, norms: Floats, first: int, last: int) -> None:
        """The gradient of the state-value function."""
        wanted, size = self._soft_value, self._size
        loops.soft_value(self._critic.output, size, self._log_probability, 0, self._log_temperature, wanted)
        loops.copy_columns(rows, 0, 0, self._observation_size, value.inputs, 0, 0, size)
        value.forward()
        loops.value_objective(value.output, wanted, self._weights, value.gradient, loss)
        value.backward(norms, first, last)
