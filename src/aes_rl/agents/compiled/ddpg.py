"""Deep deterministic policy gradient as products and compiled loops; the reference is `aes_rl.agents.ddpg`."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.compiled import loops
from aes_rl.agents.compiled.agent import AbstractProgram, CompiledAdam, CompiledAgent, Rows, as_update
from aes_rl.agents.compiled.network import Floats, Pass
from aes_rl.agents.ddpg import DDPG, DDPGAgent
from aes_rl.streams import Streams

_ONE = np.float32(1)


def make_ddpg(config: DDPG, observation_size: int, action_size: int, streams: Streams) -> AbstractAgent:
    """The compiled agent; in float64 the reference itself."""
    agent = DDPGAgent(config, observation_size, action_size, streams)
    if agent.exploration_noise.dtype != torch.float32:
        return agent
    acting, state = Pass(agent.actor, 1), agent.exploration_noise.numpy()
    pull, scale = np.float32(config.noise_pull), np.float32(config.noise_scale)

    def act(observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        acting.inputs[:, 0] = observation.numpy()
        acting.forward()
        action = np.empty((len(observation), action_size), np.float32)
        loops.explore_around(acting.output, noise.numpy(), pull, scale, state, action)
        return torch.from_numpy(action)

    return CompiledAgent(agent, lambda batch_size: DDPGProgram(agent, batch_size), act, explores_with_state=True)


class DDPGProgram(AbstractProgram):
    """An update of DDPG. The critic's rows are the stored actions, then the policy's."""

    def __init__(self, agent: DDPGAgent, batch_size: int):
        members, action_size = agent.exploration_noise.shape
        self._size, self._action_size = batch_size, action_size
        self._discount = np.float32(agent.config.discount)
        self._observation_size = agent.actor.weights[0].shape[1]
        size = batch_size
        self._actor = Pass(agent.actor, size, trained=size, differentiated=size)
        self._critic = Pass(agent.critic, 2 * size, trained=size, differentiated=2 * size)
        self._target_actor, self._target_critic = Pass(agent.target_actor, size), Pass(agent.target_critic, size)
        self._second = Pass(agent.critic, size, differentiated=size) if agent.config.critic_first else None
        """The policy's actions under the critic that has just been updated."""
        self._action, self._next_action = (np.zeros((members, size, action_size), np.float32) for _ in range(2))
        self._no_norms = np.zeros((members, size), np.float32)
        self._actor_adam = CompiledAdam(agent.actor_optimiser)
        self._critic_adam = CompiledAdam(agent.critic_optimiser)
        self._weights = self._no_norms

    @override
    def differentiate(self, critic: Rows, actor: Rows, noise: Floats, first: int, last: int) -> Update:
        del noise
        values, size, width = self._critic, self._size, self._observation_size
        rows, weights = critic
        self._weights = actor.weights
        loss = np.empty((2, len(weights)), np.float32)
        norms = np.zeros((2, *weights.shape), np.float32)
        td_error = np.empty(weights.shape, np.float32)

        after = width + self._action_size
        _act(self._target_actor, rows, after, width, self._next_action)
        _fill(self._target_critic, 0, rows, after, width, self._next_action, 0)
        self._target_critic.forward()
        _act(self._actor, actor.rows, 0, width, self._action)
        _fill(values, 0, rows, 0, width, rows, width)
        _fill(values, size, actor.rows, 0, width, self._action, 0)
        values.forward()
        next_value = self._target_critic.output[..., 0]
        loops.critic_objective(
            values.output, next_value, rows, weights, self._discount, _ONE, values.gradient, td_error, loss[0]
        )
        loops.deterministic_objective(values.output, size, actor.weights, values.gradient, loss[1])
        values.backward(norms[0], first, last)
        self._actor_gradient(values.of_late, norms[1], first, last)
        losses = {"critic_loss": loss[0], "actor_loss": loss[1]}
        return as_update(losses, td_error, critic, actor, {"critic": norms[0], "actor": norms[1]}, first < last)

    @override
    def descend(self) -> None:
        self._critic_adam.step()
        if self._second is not None:
            second, critic, size = self._second, self._critic, self._size
            loops.copy_columns(critic.inputs, size, 0, critic.inputs.shape[2], second.inputs, 0, 0, size)
            column = second.late_inputs.shape[2] - self._action_size
            loops.copy_columns(self._action, 0, 0, self._action_size, second.late_inputs, 0, column, size)
            second.forward()
            loss = np.empty(len(self._weights), np.float32)
            loops.deterministic_objective(second.output, 0, self._weights, second.gradient, loss)
            second.backward(self._no_norms, 0, 0)
            self._actor_gradient(second.of_late, self._no_norms, 0, 0)
        self._actor_adam.step()

    def _actor_gradient(self, of_action: Floats, norms: Floats, first: int, last: int) -> None:
        """The actor's gradient, from the derivative with respect to its actions."""
        loops.tanh_gradient(of_action, self._action, self._actor.gradient)
        self._actor.backward(norms, first, last)


def _act(actor: Pass, rows: Floats, column: int, width: int, action: Floats) -> None:
    """The actions of a policy in the states that start at a column of the rows."""
    loops.copy_columns(rows, 0, column, width, actor.inputs, 0, 0, rows.shape[1])
    actor.forward()
    loops.tanh(actor.output, action)


def _fill(critic: Pass, row: int, rows: Floats, column: int, width: int, actions: Floats, action_column: int) -> None:
    """Write states and actions into a critic's inputs, from a row on."""
    count, inputs = rows.shape[1], critic.late_inputs
    loops.copy_columns(rows, 0, column, width, critic.inputs, row, 0, count)
    action_size = critic.late_size
    loops.copy_columns(actions, 0, action_column, action_size, inputs, row, inputs.shape[2] - action_size, count)
