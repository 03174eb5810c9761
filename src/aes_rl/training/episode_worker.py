"""Test episodes of one policy, run without torch: such a process is small and starts quickly."""

import os
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aes_rl.errors import RunError
from aes_rl.training.vector import simulator
from aes_rl.training.vector.group import as_number, as_observation
from aes_rl.training.vector.processes import leave_process_group, send_failure

Layers: TypeAlias = list[tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Weight and bias of every layer of one member's policy."""
SchedulingPriority = Literal["normal", "nice", "idle"]
"""Scheduling priority of evaluation workers: as training, niceness 10, or Linux's idle class (only unused cores)."""


class Episodes(NamedTuple):
    """Some test episodes of one member."""

    member: int
    numbers: list[int]
    """Their positions among the member's episodes."""
    seeds: list[int]
    layers: Layers


class EpisodeRunner:
    """Runs episodes of one policy side by side in this process."""

    def __init__(self, task: str, episodes: int, max_steps: int):
        """For evaluations with so many `episodes` per member of at most `max_steps` steps each."""
        self._environments = [simulator.make(task)]
        self._task, self._episodes, self._max_steps = task, episodes, max_steps
        self._middle, self._half = simulator.action_scale(self._environments[0])

    def run(self, episodes: Episodes) -> tuple[list[float], list[int]]:
        """Return and length of each episode."""
        with simulator.exits_as_errors(f"the environment of member {episodes.member} ended its process in an episode"):
            return self._run(episodes)

    def _run(self, episodes: Episodes) -> tuple[list[float], list[int]]:
        member, count = episodes.member, len(episodes.numbers)
        while len(self._environments) < count:
            self._environments.append(simulator.make(self._task))
        size, actions = len(episodes.layers[0][0]), len(self._half)
        # A matrix product's rounding may depend on the row and on the number of rows. An episode's result must not:
        # every episode has its fixed row in a matrix of fixed size.
        observation = np.zeros((self._episodes, size), np.float32)
        for row, environment, seed in zip(episodes.numbers, self._environments, episodes.seeds, strict=False):
            first, _ = environment.reset(seed=seed)
            observation[row] = as_observation(first, size, member)
        returns, lengths = [0.0] * count, [0] * count
        running = list(enumerate(episodes.numbers))
        while running:
            if not np.isfinite(observation).all():
                raise RunError(f"a test observation of member {member} is not finite; look at the environment")
            action = greedy_actions(episodes.layers, observation, actions)
            if not np.isfinite(action).all():
                raise RunError(f"the policy of member {member} gives actions that are not finite; it diverged")
            for episode, row in list(running):
                step = self._environments[episode].step(self._middle + self._half * action[row])
                next_observation, reward, terminated, truncated, _ = step
                observation[row] = as_observation(next_observation, size, member)
                returns[episode] += as_number("the reward", reward, member)
                lengths[episode] += 1
                ends = as_number("terminated", terminated, member) + as_number("truncated", truncated, member)
                if ends or lengths[episode] == self._max_steps:
                    running.remove((episode, row))
        if not np.isfinite(returns).all():
            raise RunError(f"a test episode of member {member} has the return {max(returns)}; look at its rewards")
        return returns, lengths

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()


def greedy_actions(layers: Layers, observation: NDArray[np.float32], actions: int) -> NDArray[np.float32]:
    """Deterministic actions in [−1, 1], as `AbstractAgent.policy` describes them."""
    output = observation
    for weight, bias in layers[:-1]:
        output = np.maximum(output @ weight + bias, 0)
    weight, bias = layers[-1]
    action: NDArray[np.float32] = np.tanh((output @ weight + bias)[:, :actions])
    return action


def run_worker(pipe: Connection, task: str, episodes: int, max_steps: int, priority: SchedulingPriority) -> None:
    """Run the episodes that arrive through the pipe until its other end has gone."""
    leave_process_group()
    _set_scheduling_priority(priority)
    try:
        runner = EpisodeRunner(task, episodes, max_steps)
        while True:
            pipe.send(("done", runner.run(pipe.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has gone or has closed the pipe
    except Exception as error:
        send_failure(pipe, error)


def _set_scheduling_priority(priority: SchedulingPriority) -> None:
    if priority == "idle" and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # some sandboxes forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    if priority != "normal":
        os.nice(10)
