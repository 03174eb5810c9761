"""Deterministic test episodes on environments of their own, here or in processes that play while training goes on."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from aes_rl.agents import AbstractAgent
from aes_rl.training.player import Part, Player, serve
from aes_rl.training.workers import Helper

Array = np.ndarray[Any, Any]


class Score(NamedTuple):
    """Test episodes of every member."""

    returns: Array
    """[P, episodes]."""
    lengths: Array
    """[P, episodes]."""


class Evaluator:
    """Test environments that are made once and played again at every evaluation.

    A seed fixes its episode, so a score depends on the parameters and the seeds alone, not on who plays it.
    """

    def __init__(self, task: str, members: int, episodes: int, workers: int):
        """`episodes` of every member, played by `workers` processes, or here if there are none."""
        self._shape = (members, episodes)
        self._player = Player(task, episodes) if workers == 0 else None
        self._helpers: list[Helper] = []
        self._parts: list[list[Part]] = []
        with _one_thread_each():
            for number in range(workers):
                who = f"the test episodes of {task} (process {number})"
                self._helpers.append(Helper(serve, (task, episodes), who))

    def start(self, agent: AbstractAgent, seeds: Sequence[Sequence[int]]) -> None:
        """Begin to play the greedy policy as it is now in episodes with given seeds, [P][episodes]."""
        layers = agent.policy()
        members, episodes = self._shape
        everything = np.arange(members * episodes)
        self._parts = []
        for own in np.array_split(everything, max(1, len(self._helpers))):
            parts = []
            for member in np.unique(own // episodes):
                numbers = [int(number) for number in own[own // episodes == member] % episodes]
                policy = [(weight[member], bias[member]) for weight, bias in layers]
                parts.append(Part(int(member), numbers, [seeds[member][number] for number in numbers], policy))
            self._parts.append(parts)
        for helper, parts in zip(self._helpers, self._parts, strict=False):
            helper.ask(parts)

    def is_done(self) -> bool:
        """Whether `finish` would not have to wait."""
        return all(helper.has_answered() for helper in self._helpers)

    def finish(self) -> Score:
        """The episodes that were started, once all of them have been played."""
        score = Score(np.zeros(self._shape), np.zeros(self._shape, np.int64))
        if self._player is not None:
            answers = [self._player.play_all(parts) for parts in self._parts]
        else:
            answers = [helper.answer() for helper in self._helpers]
        for parts, answer in zip(self._parts, answers, strict=True):
            for part, (returns, lengths) in zip(parts, answer, strict=True):
                score.returns[part.member, part.episodes] = returns
                score.lengths[part.member, part.episodes] = lengths
        return score

    def play(self, agent: AbstractAgent, seeds: Sequence[Sequence[int]]) -> Score:
        """Start, and wait."""
        self.start(agent, seeds)
        return self.finish()

    def close(self) -> None:
        """End the environments."""
        if self._player is not None:
            self._player.close()
        for helper in self._helpers:
            helper.hang_up()
        for helper in self._helpers:
            helper.close()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started inside multiply matrices with one thread: there are as many of them as cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
