"""Processes that step environments for the learner.

Requests and failures travel through a pipe, and either end notices when the other is gone: reading from the pipe ends.
The turn to step, asked for a thousand times a second, travels through shared memory.
"""

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from typing_extensions import override

from aes_rl.errors import RunError, UserError
from aes_rl.training.bell import Bell
from aes_rl.training.board import Board, Sizes, board_size
from aes_rl.training.group import Group

Array = np.ndarray[Any, Any]
_NUMBERS_A_LINE = 8
"""Numbers per cache line: what two processes write lies in lines of their own."""


_LONGEST_END = 5
"""Seconds that a process has to end by itself."""


class Turns:
    """Numbers in shared memory: the step asked for, the one each worker has done, and who sleeps."""

    def __init__(self, memory: Array):
        """In an array of `size` numbers."""
        numbers = memory[::_NUMBERS_A_LINE]
        self.asked: Array = numbers[:1]
        self.done, self._workers_sleep, self._learner_sleeps = np.split(numbers[1:], 3)

    @staticmethod
    def size(workers: int) -> int:
        """How many numbers so many workers need."""
        return _NUMBERS_A_LINE * (1 + 3 * workers)

    def sleeps(self, worker: int) -> tuple[Array, Array]:
        """Whether a worker sleeps, and whether the learner sleeps until that worker is done."""
        return self._workers_sleep[worker : worker + 1], self._learner_sleeps[worker : worker + 1]


class Helper:
    """A process with a pipe: requests one way, answers or a failure the other."""

    def __init__(self, target: Callable[..., None], arguments: tuple[Any, ...], who: str):
        """Run `target(pipe, *arguments)`; `who` is what messages call it."""
        self.who = who
        context = multiprocessing.get_context("spawn")  # a forked child would keep its siblings' pipes open
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: Any) -> None:
        """Send a request."""
        try:
            self._pipe.send(request)
        except (BrokenPipeError, OSError) as error:
            if self.has_answered():
                self.answer()  # it says what went wrong
            raise RunError(self._exit_message()) from error

    def answer(self) -> Any:
        """Wait for the answer to a request."""
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RunError(self._exit_message()) from error
        if kind == "failed":
            raise RunError(f"{self.who} failed:\n{content}")
        if kind == "refused":
            raise RunError(content)
        return content

    def has_answered(self) -> bool:
        """Whether `answer` would not have to wait."""
        return self._pipe.poll(0)

    def hang_up(self) -> None:
        """Let the process end once it has nothing more to do; `close` waits for it."""
        self._pipe.close()

    def close(self) -> None:
        """End the process."""
        self.hang_up()
        self._process.join(timeout=_LONGEST_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _exit_message(self) -> str:
        self._process.join(timeout=1)
        return (
            f"the process of {self.who} died (exit code {self._process.exitcode}); the last checkpoint is intact, "
            "resume from it"
        )


def wait_for_answer(helpers: Iterable[Helper]) -> None:
    """Sleep until one of them has answered, or died."""
    multiprocessing.connection.wait([helper._pipe for helper in helpers])


class Worker(Helper):
    """A process that steps some members' environments."""

    def __init__(
        self, number: int, task: str, members: list[int], seeds: list[int], board: "SharedBoard", turns: Turns
    ):
        line, their_line = multiprocessing.get_context("spawn").Pipe()
        arguments = (their_line, number, task, members, seeds, board)
        super().__init__(_work, arguments, f"the environments of members {members} ({task})")
        their_line.close()
        self.members = members
        self._turns, self._number = turns, number
        self._bell = Bell(line, self._pipe, *turns.sleeps(number)[::-1])

    def ask_step(self) -> None:
        """Let the environments step, now that the number of the turn is raised."""
        self._bell.ring()

    def await_step(self) -> None:
        """Wait until the environments have stepped."""
        turns, number = self._turns, self._number
        while not self._bell.wait(lambda: turns.done[number] >= turns.asked[0]):
            self.answer()  # a failure, or the end of the pipe

    @override
    def close(self) -> None:
        super().close()
        self._bell.close()


class SharedBoard:
    """A board and the turns in memory that several processes share, which no file names."""

    def __init__(self, members: int, sizes: Sizes, workers: int):
        self._members, self._sizes = members, sizes
        context = multiprocessing.get_context("spawn")
        self._numbers = context.RawArray(ctypes.c_float, board_size(members, sizes))
        self._turns = context.RawArray(ctypes.c_int64, Turns.size(workers))

    def board(self) -> Board:
        """The board."""
        return Board(np.ctypeslib.as_array(self._numbers), self._members, self._sizes)

    def turns(self) -> Turns:
        """The turns."""
        return Turns(np.ctypeslib.as_array(self._turns))


def leave_signals_to_the_parent() -> None:
    """Form a group of its own: the parent finishes its step and saves when it is stopped, and needs its helpers."""
    os.setpgid(0, 0)


def _work(
    pipe: Connection,
    line: Connection,
    number: int,
    task: str,
    members: list[int],
    seeds: list[int],
    shared: SharedBoard,
) -> None:
    leave_signals_to_the_parent()
    board, turns = shared.board(), shared.turns()
    bell = Bell(line, pipe, *turns.sleeps(number))
    try:
        group = Group(task, members, seeds, board)
        pipe.send(("done", None))
        while True:
            if bell.wait(lambda: turns.asked[0] > turns.done[number]):
                group.step()
                turns.done[number] += 1
                bell.ring()
                continue
            request = pipe.recv()
            if request == "save":
                pipe.send(("done", group.save()))
            else:
                kind, content = request
                (group.reset if kind == "reset" else group.restore)(content)
                pipe.send(("done", None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe
    except Exception as error:
        tell(pipe, error)


def tell(pipe: Connection, error: Exception) -> None:
    """Tell the parent why this process ends: in a line where that says all, else with the traceback."""
    is_told = isinstance(error, (UserError, RunError))
    with suppress(BrokenPipeError, ConnectionResetError):
        pipe.send(("refused", str(error)) if is_told else ("failed", traceback.format_exc()))
