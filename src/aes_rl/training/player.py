"""Test episodes of one policy, played without torch: a process that only plays is small and starts at once."""

import os
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from aes_rl.training import simulator
from aes_rl.training.workers import leave_signals_to_the_parent

Array = np.ndarray[Any, Any]
Layers = list[tuple[Array, Array]]
"""Weight and bias of every layer of one member's policy."""


class Part(NamedTuple):
    """Some test episodes of one member."""

    member: int
    episodes: list[int]
    """Their numbers."""
    seeds: list[int]
    layers: Layers


class Player:
    """Plays episodes of one policy side by side in this process."""

    def __init__(self, task: str, most: int):
        """Up to `most` episodes at once."""
        self._environments = [simulator.make(task)]
        self._task, self._most = task, most
        space: Any = self._environments[0].action_space
        self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def play(self, layers: Layers, seeds: list[int]) -> tuple[list[float], list[int]]:
        """Returns and lengths of the episodes with given seeds."""
        while len(self._environments) < len(seeds):
            self._environments.append(simulator.make(self._task))
        size, actions = len(layers[0][0]), len(self._half)
        # Always as many rows: a product's rounding may depend on their number, an episode must not.
        observation = np.zeros((self._most, size), np.float32)
        for row, seed in enumerate(seeds):
            observation[row], _ = self._environments[row].reset(seed=seed)
        returns, lengths = [0.0] * len(seeds), [0] * len(seeds)
        running = list(range(len(seeds)))
        while running:
            action = greedy(layers, observation, actions)
            for row in list(running):
                step = self._environments[row].step(self._middle + self._half * action[row])
                observation[row], reward, terminated, truncated, _ = step
                returns[row] += float(reward)
                lengths[row] += 1
                if terminated or truncated:
                    running.remove(row)
        return returns, lengths

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()


def greedy(layers: Layers, observation: Array, actions: int) -> Array:
    """Deterministic actions in [−1, 1], as `AbstractAgent.policy` describes them."""
    output = observation
    for weight, bias in layers[:-1]:
        output = np.maximum(output @ weight + bias, 0)
    weight, bias = layers[-1]
    action: Array = np.tanh((output @ weight + bias)[:, :actions])
    return action


def serve(pipe: Connection, task: str, episodes: int, stands_back: bool) -> None:
    """Play parts for the other end of a pipe until it is gone."""
    leave_signals_to_the_parent()
    if stands_back:
        _stand_back()
    try:
        player = Player(task, episodes)
        while True:
            part: Part = pipe.recv()
            pipe.send(("done", player.play(part.layers, part.seeds)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe
    except Exception:
        pipe.send(("failed", traceback.format_exc()))


def _stand_back() -> None:
    """Play where a core has nothing else to do, and leave it at once to whoever wakes up there to train."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
