"""Test episodes of one policy, played without torch: a process that only plays is small and starts at once."""

import os
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import numpy as np

from aes_rl.errors import RunError
from aes_rl.training import simulator
from aes_rl.training.group import number, vector
from aes_rl.training.workers import leave_signals_to_the_parent, tell

Array = np.ndarray[Any, Any]
Layers = list[tuple[Array, Array]]
"""Weight and bias of every layer of one member's policy."""


Standing = Literal["equal", "nice", "idle"]
"""How who plays stands to who trains: idle means only where a core has nothing else to do, leaving it at once."""


class Part(NamedTuple):
    """Some test episodes of one member."""

    member: int
    episodes: list[int]
    """Which of the member's."""
    seeds: list[int]
    layers: Layers


class Player:
    """Plays episodes of one policy side by side in this process."""

    def __init__(self, task: str, most: int, longest: int):
        """For parts of an evaluation that has `most` episodes per member, of at most `longest` steps each."""
        self._environments = [simulator.make(task)]
        self._task, self._most, self._longest = task, most, longest
        space: Any = self._environments[0].action_space
        self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def play(self, part: Part) -> tuple[list[float], list[int]]:
        """Returns and lengths of its episodes."""
        count = len(part.episodes)
        while len(self._environments) < count:
            self._environments.append(simulator.make(self._task))
        size, actions = len(part.layers[0][0]), len(self._half)
        # Each in its own row of always as many: a product's rounding may depend on both, an episode must not.
        observation = np.zeros((self._most, size), np.float32)
        for row, environment, seed in zip(part.episodes, self._environments, part.seeds, strict=False):
            first, _ = environment.reset(seed=seed)
            observation[row] = vector(first, size, part.member)
        returns, lengths = [0.0] * count, [0] * count
        running = list(enumerate(part.episodes))
        while running:
            action = greedy(part.layers, observation, actions)
            if not np.isfinite(action).all():
                raise RunError(f"the policy of member {part.member} gives actions that are not finite; it has diverged")
            for episode, row in list(running):
                step = self._environments[episode].step(self._middle + self._half * action[row])
                seen, reward, terminated, truncated, _ = step
                observation[row] = vector(seen, size, part.member)
                returns[episode] += number("the reward", reward, part.member)
                lengths[episode] += 1
                if terminated or truncated or lengths[episode] == self._longest:
                    running.remove((episode, row))
        if not np.isfinite(returns).all():
            raise RunError(f"a test episode of member {part.member} has the return {max(returns)}; look at its rewards")
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


def serve(pipe: Connection, task: str, episodes: int, longest: int, standing: Standing) -> None:
    """Play parts for the other end of a pipe until it is gone."""
    leave_signals_to_the_parent()
    _stand_back(standing)
    try:
        player = Player(task, episodes, longest)
        while True:
            part: Part = pipe.recv()
            pipe.send(("done", player.play(part)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe
    except Exception as error:
        tell(pipe, error)


def _stand_back(standing: Standing) -> None:
    if standing == "idle" and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # not every sandbox has it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    if standing != "equal":
        os.nice(10)
