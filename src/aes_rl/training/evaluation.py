"""Deterministic test episodes on separate environments, run in this process or in workers while training continues."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aes_rl.agents import AbstractAgent
from aes_rl.training.config import Training
from aes_rl.training.episode_worker import EpisodeRunner, Episodes, SchedulingPriority, run_worker
from aes_rl.training.vector.processes import ChildProcess, wait_for_answer

_MIN_JOBS_PER_WORKER = 4
"""Fewer leave workers idle while the last one runs; more run few episodes side by side."""


class Score(NamedTuple):
    """Test episodes of every member."""

    returns: NDArray[np.float64]
    """[P, episodes]."""
    lengths: NDArray[np.int64]
    """[P, episodes]."""


Results: TypeAlias = tuple[list[float], list[int]]
"""Returns and lengths of some episodes."""


class Evaluator:
    """Test environments that are made once and used at every evaluation.

    A seed fixes its episode, so a score depends on the parameters and the seeds alone, not on which process runs it.
    Some policies fall at once and others never, so each worker gets a few episodes of one member whenever it is free.
    """

    def __init__(
        self,
        task: str,
        members: int,
        episodes: int,
        workers: int,
        priority: SchedulingPriority = "normal",
        max_steps: int = Training.longest_evaluation,
    ):
        """Run `episodes` per member of at most `max_steps` steps in `workers` processes; 0 runs them in this one.

        `priority` is the scheduling priority of the workers.
        """
        self._shape = (members, episodes)
        workers = min(workers, members * episodes)
        self._runner = EpisodeRunner(task, episodes, max_steps) if workers == 0 else None
        self._workers: list[ChildProcess[Results]] = []
        with _single_threaded_children():
            for number in range(workers):
                description = f"the test episodes of {task} (process {number})"
                self._workers.append(ChildProcess(run_worker, (task, episodes, max_steps, priority), description))
        self._waiting: list[Episodes] = []
        self._running: dict[ChildProcess[Results], Episodes] = {}
        self._score = self._empty_score()

    def start(self, agent: AbstractAgent, seeds: Sequence[Sequence[int]]) -> None:
        """Start episodes of the current greedy policy with the given seeds, [P][episodes]."""
        layers = agent.policy()
        members, episodes = self._shape
        jobs = min(episodes, max(1, -(-_MIN_JOBS_PER_WORKER * len(self._workers) // members)))
        self._score = self._empty_score()
        for member in range(members):
            policy = [(weight[member], bias[member]) for weight, bias in layers]
            for part in np.array_split(np.arange(episodes), jobs):
                numbers = [int(number) for number in part]
                self._waiting.append(Episodes(member, numbers, [seeds[member][number] for number in numbers], policy))
        self._assign()

    def is_done(self) -> bool:
        """Whether `finish` would return without waiting for workers; each call also gives idle workers new episodes."""
        self._collect()
        return self._runner is not None or not (self._running or self._waiting)

    def finish(self) -> Score:
        """Wait for all episodes that were started."""
        if self._runner is not None:
            for episodes in self._waiting:
                self._store(episodes, self._runner.run(episodes))
            self._waiting = []
        while not self.is_done():
            wait_for_answer(self._running)
        return self._score

    def evaluate(self, agent: AbstractAgent, seeds: Sequence[Sequence[int]]) -> Score:
        """Start the episodes and wait for them."""
        self.start(agent, seeds)
        return self.finish()

    def close(self) -> None:
        """Close the environments and end the workers."""
        if self._runner is not None:
            self._runner.close()
        for worker in self._workers:
            worker.request_exit()
        for worker in self._workers:
            worker.close()

    def _assign(self) -> None:
        for worker in self._workers:
            if self._waiting and worker not in self._running:
                episodes = self._waiting.pop(0)
                worker.send(episodes)
                self._running[worker] = episodes

    def _collect(self) -> None:
        for worker in [worker for worker in self._running if worker.has_answered()]:
            self._store(self._running.pop(worker), worker.receive())
        self._assign()

    def _store(self, episodes: Episodes, result: Results) -> None:
        member, numbers = episodes.member, episodes.numbers
        self._score.returns[member, numbers], self._score.lengths[member, numbers] = result

    def _empty_score(self) -> Score:
        return Score(np.zeros(self._shape), np.zeros(self._shape, np.int64))


@contextmanager
def _single_threaded_children() -> Iterator[None]:
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
