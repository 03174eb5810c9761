"""Deterministic test episodes on environments of their own, here or in processes that play while training goes on."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from aes_rl.agents import AbstractAgent
from aes_rl.training.config import Training
from aes_rl.training.player import Part, Player, Standing, serve
from aes_rl.training.workers import Helper, wait_for_answer

Array = np.ndarray[Any, Any]


_PARTS_A_PROCESS = 4
"""At least; fewer leave processes idle while the last one plays, more play few episodes side by side."""


class Score(NamedTuple):
    """Test episodes of every member."""

    returns: Array
    """[P, episodes]."""
    lengths: Array
    """[P, episodes]."""


class Evaluator:
    """Test environments that are made once and played again at every evaluation.

    A seed fixes its episode, so a score depends on the parameters and the seeds alone, not on who plays it. Processes
    get some episodes of a member at a time, whoever is free: some policies fall at once, others never.
    """

    def __init__(
        self,
        task: str,
        members: int,
        episodes: int,
        workers: int,
        standing: Standing = "equal",
        longest: int = Training.longest_evaluation,
    ):
        """`episodes` of every member of at most `longest` steps, played by `workers` processes, or here without any.

        Unless they stand equal they leave cores that are wanted to those that train.
        """
        self._shape = (members, episodes)
        workers = min(workers, members * episodes)
        self._player = Player(task, episodes, longest) if workers == 0 else None
        self._helpers: list[Helper] = []
        with _one_thread_each():
            for number in range(workers):
                who = f"the test episodes of {task} (process {number})"
                self._helpers.append(Helper(serve, (task, episodes, longest, standing), who))
        self._waiting: list[Part] = []
        self._under_way: dict[Helper, Part] = {}
        self._score = self._nothing_played()

    def start(self, agent: AbstractAgent, seeds: Sequence[Sequence[int]]) -> None:
        """Begin to play the greedy policy as it is now in episodes with given seeds, [P][episodes]."""
        layers = agent.policy()
        members, episodes = self._shape
        pieces = min(episodes, max(1, -(-_PARTS_A_PROCESS * len(self._helpers) // members)))
        self._score = self._nothing_played()
        for member in range(members):
            policy = [(weight[member], bias[member]) for weight, bias in layers]
            for piece in np.array_split(np.arange(episodes), pieces):
                numbers = [int(number) for number in piece]
                self._waiting.append(Part(member, numbers, [seeds[member][number] for number in numbers], policy))
        self._deal()

    def is_done(self) -> bool:
        """Whether `finish` would not have to wait for processes; who asks often keeps them busy."""
        self._collect()
        return self._player is not None or not (self._under_way or self._waiting)

    def finish(self) -> Score:
        """The episodes that were started, once all of them have been played."""
        if self._player is not None:
            for part in self._waiting:
                self._write_down(part, self._player.play(part))
            self._waiting = []
        while not self.is_done():
            wait_for_answer(self._under_way)
        return self._score

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

    def _deal(self) -> None:
        for helper in self._helpers:
            if self._waiting and helper not in self._under_way:
                part = self._waiting.pop(0)
                helper.ask(part)
                self._under_way[helper] = part

    def _collect(self) -> None:
        for helper in [helper for helper in self._under_way if helper.has_answered()]:
            self._write_down(self._under_way.pop(helper), helper.answer())
        self._deal()

    def _write_down(self, part: Part, played: tuple[list[float], list[int]]) -> None:
        self._score.returns[part.member, part.episodes], self._score.lengths[part.member, part.episodes] = played

    def _nothing_played(self) -> Score:
        return Score(np.zeros(self._shape), np.zeros(self._shape, np.int64))


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
