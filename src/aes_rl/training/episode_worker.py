"""Test episodes of one policy, run without torch: such a process is small and starts quickly."""

import os
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aes_rl.errors import RunError
from aes_rl.training.vector import simulator
from aes_rl.training.vector.processes import leave_process_group, send_failure
from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size
from aes_rl.training.vector.stepper import AbstractStepper, as_observation, make_stepper

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
        self._task, self._max_steps = task, max_steps
        sizes = sizes_of(task)
        # A matrix product's rounding may depend on the row and on the number of rows. An episode's result must not:
        # every episode has its fixed row in a matrix of fixed size.
        self._data = StepData(np.zeros(step_data_size(episodes, sizes), np.float32), episodes, sizes)
        self._steppers: dict[tuple[int, ...], AbstractStepper] = {}
        """By rows."""

    def run(self, episodes: Episodes) -> tuple[list[float], list[int]]:
        """Return and length of each episode."""
        with simulator.exits_as_errors(f"the environment of member {episodes.member} ended its process in reset"):
            return self._run(episodes)

    def _run(self, episodes: Episodes) -> tuple[list[float], list[int]]:
        member, rows, data = episodes.member, episodes.numbers, self._data
        count = len(rows)
        stepper = self._stepper_of(rows)
        stepper.members = [member] * count
        stepper.returns[:] = 0
        stepper.select(range(count))
        data.memory[:] = 0
        for position, (row, seed) in enumerate(zip(rows, episodes.seeds, strict=True)):
            first, _ = self._environments[position].reset(seed=seed)
            data.next_observation[row] = as_observation(first, data.next_observation.shape[1], member)
            stepper.take_over(position)
        lengths = np.zeros(count, np.int64)
        running = np.arange(count)
        while len(running):
            if not np.isfinite(data.next_observation).all():
                raise RunError(f"a test observation of member {member} is not finite; look at the environment")
            data.action[...] = greedy_actions(episodes.layers, data.next_observation, data.action.shape[1])
            if not np.isfinite(data.action).all():
                raise RunError(f"the policy of member {member} gives actions that are not finite; it diverged")
            has_ended = stepper.step()
            lengths[running] += 1
            if has_ended or lengths[running[0]] == self._max_steps:
                is_over = (data.ended[rows] != 0) | (lengths == self._max_steps)
                running = running[~is_over[running]]
                stepper.select(running.tolist())
        if not np.isfinite(stepper.returns).all():
            raise RunError(
                f"a test episode of member {member} has the return {max(stepper.returns)}; look at its rewards"
            )
        return stepper.returns.tolist(), lengths.tolist()

    def _stepper_of(self, rows: list[int]) -> AbstractStepper:
        """The stepper of as many environments as there are rows."""
        while len(self._environments) < len(rows):
            self._environments.append(simulator.make(self._task))
        key = tuple(rows)
        if key not in self._steppers:
            own = self._environments[: len(rows)]
            self._steppers[key] = make_stepper(self._task, own, self._data, rows)
        return self._steppers[key]

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
