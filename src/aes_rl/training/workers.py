"""Processes that step environments for the learner.

Requests and failures travel through a pipe, and either end notices when the other is gone: reading from the pipe ends.
The turn to step, asked for a thousand times a second, travels through shared memory where the machine has cores to
spare: waiting processes look at a number instead of being woken by the system.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from aes_rl.training.board import Board, Sizes, board_size
from aes_rl.training.group import Group

Array = np.ndarray[Any, Any]

_LOOK_FOR = 0.002
"""Seconds to look without a pause; a wait that long means that the other side is busy with something else."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01
"""Seconds to sleep between looks after that: while the learner evaluates or saves, its processes cost nothing."""
_LOOKS_A_CHECK = 200
"""Looks between two checks of the clock and the pipe."""


class Turns:
    """Step numbers in shared memory: the one asked for, and the one each worker has done."""

    def __init__(self, path: str, workers: int):
        numbers = np.memmap(path, np.int64, "r+", shape=(8 * (1 + workers),))
        # One number in every eight: each is alone in its cache line.
        self.asked: Array = numbers[:1]
        self.done: Array = numbers[8::8]


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
            raise RuntimeError(self._obituary()) from error

    def answer(self) -> Any:
        """Wait for the answer to a request."""
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(self._obituary()) from error
        if kind == "failed":
            raise RuntimeError(f"{self.who} failed:\n{content}")
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
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    def _obituary(self) -> str:
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
        self, number: int, task: str, members: list[int], seeds: list[int], board: "SharedBoard", turns: Turns | None
    ):
        arguments = (number, task, members, seeds, board, turns is not None)
        super().__init__(_work, arguments, f"the environments of members {members} ({task})")
        self.members = members
        self._number, self._turns = number, turns

    def ask_step(self) -> None:
        """Let the environments step; with turns, whoever raises the number asks all workers at once."""
        if self._turns is None:
            self.ask("step")

    def await_step(self) -> None:
        """Wait until the environments have stepped."""
        turns = self._turns
        if turns is None:
            self.answer()
            return
        number = self._number
        while not look_until(lambda: turns.done[number] >= turns.asked[0], self._pipe):
            self.answer()  # a failure, or the end of the pipe


class SharedBoard:
    """Where a board and the turns lie in files that several processes map."""

    def __init__(self, members: int, sizes: Sizes, workers: int):
        self._members, self._sizes, self._workers = members, sizes, workers
        self._paths = [_shared_file(), _shared_file()]

    def board(self) -> Board:
        """The board; the first to map the file grows it to its size."""
        size = board_size(self._members, self._sizes)
        return Board(np.memmap(self._paths[0], np.float32, "r+", shape=(size,)), self._members, self._sizes)

    def turns(self) -> Turns:
        """The turns."""
        return Turns(self._paths[1], self._workers)

    def unlink(self) -> None:
        """Forget the files once everybody has mapped them; they go when the last of them does."""
        for path in self._paths:
            os.unlink(path)


def look_until(has_come: Callable[[], Any], pipe: Connection) -> bool:
    """Wait for something in shared memory: True when it has come, False if there is something in the pipe first."""
    deadline = time.perf_counter() + _LOOK_FOR
    while time.perf_counter() < deadline:
        for _ in range(_LOOKS_A_CHECK):
            if has_come():
                return True
        if pipe.poll(0):
            return bool(has_come())
        os.sched_yield()  # somebody else may have work for this core
    pause = _FIRST_PAUSE
    while not has_come():
        if pipe.poll(pause):
            return bool(has_come())
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


def leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches the whole group: the parent finishes its step and saves, and needs its helpers for that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _shared_file() -> str:
    """A file in memory where the system has such a folder, else in the ordinary temporary folder."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    handle, path = tempfile.mkstemp(prefix="aes-rl-", dir=folder)
    os.close(handle)
    return path


def _work(
    pipe: Connection, number: int, task: str, members: list[int], seeds: list[int], shared: SharedBoard, has_turns: bool
) -> None:
    leave_interrupts_to_the_parent()
    board, turns = shared.board(), shared.turns()
    try:
        group = Group(task, members, seeds, board)
        pipe.send(("done", None))
        while True:
            if has_turns and look_until(lambda: turns.asked[0] > turns.done[number], pipe):
                group.step()
                turns.done[number] += 1
                continue
            request = pipe.recv()
            if request == "step":
                group.step()
                pipe.send(("done", None))
            elif request == "save":
                pipe.send(("done", group.save()))
            else:
                kind, content = request
                (group.reset if kind == "reset" else group.restore)(content)
                pipe.send(("done", None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
