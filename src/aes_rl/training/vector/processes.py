"""Child processes, and those of them that step environments for the learner.

Requests and failures travel through a pipe. Each end notices when the other has gone: reading from the pipe ends.
The order to step, given a thousand times per second, travels through shared memory.
"""

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl.errors import RunError, UserError
from aes_rl.training.vector.group import Group
from aes_rl.training.vector.simulator import Saved
from aes_rl.training.vector.step_data import Sizes, StepData, step_data_size
from aes_rl.training.vector.waiting import TurnEvent

_INTEGERS_PER_CACHE_LINE = 8
"""Numbers that different processes write lie in different cache lines."""
_EXIT_SECONDS = 5
"""Time that a process has to exit by itself."""

Answer = TypeVar("Answer")


class StepCounters:
    """Integers in shared memory: steps requested, steps that each worker has completed, and which end sleeps."""

    def __init__(self, memory: NDArray[np.int64]):
        """Views into an array of `size` numbers."""
        numbers = memory[::_INTEGERS_PER_CACHE_LINE]
        self.requested = numbers[:1]
        self.completed, self._is_worker_asleep, self._is_learner_asleep = np.split(numbers[1:], 3)

    @staticmethod
    def size(workers: int) -> int:
        """How many numbers so many workers need."""
        return _INTEGERS_PER_CACHE_LINE * (1 + 3 * workers)

    def asleep_flags(self, worker: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Whether a worker sleeps, and whether the learner sleeps until that worker has stepped."""
        return self._is_worker_asleep[worker : worker + 1], self._is_learner_asleep[worker : worker + 1]


class ChildProcess(Generic[Answer]):
    """A process with a pipe: requests in one direction, answers or a failure in the other."""

    def __init__(self, target: Callable[..., None], arguments: tuple[object, ...], description: str):
        """Run `target(pipe, *arguments)`; error messages use the description."""
        self._description = description
        context = multiprocessing.get_context("spawn")  # a forked child would keep its siblings' pipes open
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=target, args=(child_pipe, *arguments), daemon=True)
        self._process.start()
        child_pipe.close()

    def send(self, request: object) -> None:
        """Send a request."""
        try:
            self._pipe.send(request)
        except (BrokenPipeError, OSError) as error:
            if self.has_answered():
                self.receive()  # raises the reason that the process gave
            raise RunError(self._exit_message()) from error

    def receive(self) -> Answer:
        """Wait for the answer to a request."""
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RunError(self._exit_message()) from error
        if kind == "failed":
            raise RunError(f"{self._description} failed:\n{content}")
        if kind == "refused":
            raise RunError(content)
        answer: Answer = content
        return answer

    def has_answered(self) -> bool:
        """Whether `receive` would return at once."""
        return self._pipe.poll(0)

    def request_exit(self) -> None:
        """Let the process exit once it has finished its work; `close` waits for that."""
        self._pipe.close()

    def close(self) -> None:
        """End the process."""
        self.request_exit()
        self._process.join(timeout=_EXIT_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _exit_message(self) -> str:
        self._process.join(timeout=1)
        return (
            f"the process of {self._description} died (exit code {self._process.exitcode}); the last checkpoint is "
            "intact, resume from it"
        )


def wait_for_answer(processes: Iterable[ChildProcess[Answer]]) -> None:
    """Sleep until one of the processes has answered or died."""
    multiprocessing.connection.wait([process._pipe for process in processes])


class EnvironmentWorker(ChildProcess[list[tuple[int, Saved | None, float]]]):
    """A process that steps the environments of some members. Answers to requests other than "save" are empty."""

    def __init__(
        self,
        number: int,
        task: str,
        members: list[int],
        seeds: list[int],
        shared: "SharedStepData",
        counters: StepCounters,
    ):
        connection, child_connection = multiprocessing.get_context("spawn").Pipe()
        arguments = (child_connection, number, task, members, seeds, shared)
        super().__init__(_run_worker, arguments, f"the environments of members {members} ({task})")
        child_connection.close()
        self.members = members
        self._counters, self._number = counters, number
        is_worker_asleep, is_learner_asleep = counters.asleep_flags(number)
        self._event = TurnEvent(connection, self._pipe, is_learner_asleep, is_worker_asleep)

    def begin_step(self) -> None:
        """Let the environments step, once the counter of requested steps has been raised."""
        self._event.notify()

    def finish_step(self) -> None:
        """Wait until the environments have stepped."""
        counters, number = self._counters, self._number
        while not self._event.wait(lambda: counters.completed[number] >= counters.requested[0]):
            self.receive()  # raises: a failure, or the end of the pipe

    @override
    def close(self) -> None:
        super().close()
        self._event.close()


class SharedStepData:
    """Step data and step counters in anonymous memory that several processes share."""

    def __init__(self, members: int, sizes: Sizes, workers: int):
        self._members, self._sizes = members, sizes
        context = multiprocessing.get_context("spawn")
        self._data = context.RawArray(ctypes.c_float, step_data_size(members, sizes))
        self._counters = context.RawArray(ctypes.c_int64, StepCounters.size(workers))

    def data(self) -> StepData[NDArray[np.float32]]:
        """The step data, as views of the shared memory."""
        return StepData(np.ctypeslib.as_array(self._data), self._members, self._sizes)

    def counters(self) -> StepCounters:
        """The step counters, as views of the shared memory."""
        return StepCounters(np.ctypeslib.as_array(self._counters))


def leave_process_group() -> None:
    """Form a process group of its own: a stopped parent finishes its step and saves, and needs its children for it."""
    os.setpgid(0, 0)


def send_failure(pipe: Connection, error: Exception) -> None:
    """Tell the parent why this process exits: the message of an expected error, the traceback of any other."""
    is_expected = isinstance(error, (UserError, RunError))
    with suppress(BrokenPipeError, ConnectionResetError):
        pipe.send(("refused", str(error)) if is_expected else ("failed", traceback.format_exc()))


def _run_worker(
    pipe: Connection,
    connection: Connection,
    number: int,
    task: str,
    members: list[int],
    seeds: list[int],
    shared: SharedStepData,
) -> None:
    leave_process_group()
    counters = shared.counters()
    event = TurnEvent(connection, pipe, *counters.asleep_flags(number))
    try:
        group = Group(task, members, seeds, shared.data())
        pipe.send(("done", []))
        while True:
            if event.wait(lambda: counters.requested[0] > counters.completed[number]):
                group.step()
                counters.completed[number] += 1
                event.notify()
                continue
            request = pipe.recv()
            if request == "save":
                pipe.send(("done", group.save()))
            else:
                kind, content = request
                (group.reset if kind == "reset" else group.restore)(content)
                pipe.send(("done", []))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has gone or has closed the pipe
    except Exception as error:
        send_failure(pipe, error)
