"""One environment a member, stepped in worker processes through shared memory while the learner updates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aes_rl.training.board import Board, board_size, sizes_of
from aes_rl.training.group import Group, Resumption
from aes_rl.training.simulator import Saved
from aes_rl.training.workers import SharedBoard, Turns, Worker

Array = np.ndarray[Any, Any]


class Environments:
    """All members' environments: `send` actions, do something else, `receive`."""

    def __init__(self, task: str, seeds: Sequence[int], workers: int):
        """Reset every environment with its seed; `workers` of 0 steps them in this process."""
        self.task = task
        sizes = sizes_of(task)
        members = len(seeds)
        self._workers: list[Worker] = []
        self._turns: Turns | None = None
        self._group: Group | None = None
        if workers == 0:
            self.board = Board(np.zeros(board_size(members, sizes), np.float32), members, sizes)
            self._group = Group(task, range(members), seeds, self.board)
            return
        workers = min(workers, members)
        shared = SharedBoard(members, sizes, workers)
        self.board, self._turns = shared.board(), shared.turns()
        try:
            for number, part in enumerate(np.array_split(np.arange(members), workers)):
                own = [int(member) for member in part]
                self._workers.append(Worker(number, task, own, [seeds[m] for m in own], shared, self._turns))
            for worker in self._workers:
                worker.answer()
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode of every environment, with its seed."""
        if self._group is not None:
            self._group.reset(seeds)
        for worker in self._workers:
            worker.ask(("reset", [seeds[member] for member in worker.members]))
        for worker in self._workers:
            worker.answer()

    def send(self, action: Array) -> None:
        """Let every environment take its action."""
        self.board.action[...] = action
        if self._turns is not None:
            self._turns.asked += 1
        for worker in self._workers:
            worker.ask_step()

    def receive(self) -> Board:
        """Wait until every environment has stepped; the board with what came of it."""
        if self._group is not None:
            self._group.step()
        for worker in self._workers:
            worker.await_step()
        return self.board

    def save(self) -> dict[int, tuple[Saved | None, float]]:
        """Every member's environment between two steps."""
        if self._group is not None:
            return {member: (state, total) for member, state, total in self._group.save()}
        for worker in self._workers:
            worker.ask("save")
        return {member: (state, total) for worker in self._workers for member, state, total in worker.answer()}

    def restore(self, resumptions: dict[int, Resumption]) -> None:
        """Continue from a saved state; the board then shows what the agent sees now."""
        if self._group is not None:
            self._group.restore(resumptions)
        for worker in self._workers:
            worker.ask(("restore", {member: resumptions[member] for member in worker.members}))
        for worker in self._workers:
            worker.answer()

    def close(self) -> None:
        """End the workers."""
        if self._group is not None:
            self._group.close()
        for worker in self._workers:
            worker.close()
