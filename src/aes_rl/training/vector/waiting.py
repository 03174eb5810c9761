"""How the learner and a worker process wait for each other: by spinning, or asleep until the other one notifies.

Spinning is the fastest and occupies a whole core. A waiting process therefore spins only while no other process wants
its core. It sleeps where several runs share a machine or there are more processes than cores.

What one side writes before it raises its step counter must be visible to the other side before the new counter is. On
x86 that is guaranteed. Other processors may reorder writes: there every turn sends a notification, and the waiting side
accepts the counter only after it has read it. A write to a pipe and the matching read order everything before them.
"""

import math
import os
import platform
import selectors
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

_HAS_ORDERED_WRITES = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
"""Whether this processor shows one process's writes to another in the order in which they were made."""
_MAX_SPIN_SECONDS = 0.002
"""A longer wait means that the other side is busy with something else."""
_POLLS_PER_CHECK = 200
"""Polls of the condition between two checks of the clock, the pipe and the core."""
_SLEEPS_AFTER_PREEMPTION = 100
"""Waits spent asleep, after another process wanted the core, before spinning is tried again."""
_MAX_SLEEP_SECONDS = 0.01
"""Time between two polls while asleep: the other side may not notify if it has not seen yet that this one sleeps."""


class TurnEvent:
    """One end of a two-way event between processes: wait for the other end, and wake it if it sleeps."""

    def __init__(
        self,
        connection: Connection,
        request_pipe: Connection,
        is_asleep: NDArray[np.int64],
        is_other_asleep: NDArray[np.int64],
    ):
        """Notify through `connection` and watch `request_pipe`.

        The arrays lie in shared memory. Their only element is 1 while this end, or the other end, sleeps.
        """
        self._connection, self._request_pipe = connection, request_pipe
        self._is_asleep, self._is_other_asleep = is_asleep, is_other_asleep
        self._selector = selectors.DefaultSelector()
        for source in (connection, request_pipe):
            self._selector.register(source, selectors.EVENT_READ)
        # Only Linux tells a process that others want its core.
        self._sleeps_left: float = 0 if sys.platform == "linux" else math.inf

    def notify(self) -> None:
        """Wake the other end; what it waits for must already be in shared memory."""
        if self._is_other_asleep[0] or not _HAS_ORDERED_WRITES:
            with suppress(BrokenPipeError, ConnectionResetError):  # the next read of the request pipe reports it
                os.write(self._connection.fileno(), b"!")

    def wait(self, is_ready: Callable[[], object]) -> bool:
        """Wait until a condition on shared memory holds; False if the request pipe has something to read first."""
        if not _HAS_ORDERED_WRITES:
            return self._wait_for_notification()
        return self._spin(is_ready) or self._sleep(is_ready)

    def close(self) -> None:
        """Close this end's connection."""
        self._selector.close()
        self._connection.close()

    def _spin(self, is_ready: Callable[[], object]) -> bool:
        if self._sleeps_left:
            self._sleeps_left -= 1
            return False
        if is_ready():  # before the system is asked, which takes longer than a poll
            return True
        deadline, preemptions = time.perf_counter() + _MAX_SPIN_SECONDS, _preemption_count()
        while time.perf_counter() < deadline:
            for _ in range(_POLLS_PER_CHECK):
                if is_ready():
                    return True
            if self._request_pipe.poll(0):
                break
            os.sched_yield()
            if _preemption_count() > preemptions:
                self._sleeps_left = _SLEEPS_AFTER_PREEMPTION
                break
        return False

    def _wait_for_notification(self) -> bool:
        """Wait for the one notification of this turn."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._connection in ready:
                with suppress(ConnectionResetError):
                    if os.read(self._connection.fileno(), 1):
                        return True
            if self._request_pipe in ready or self._connection in ready:  # the latter: the other end has gone
                return False

    def _sleep(self, is_ready: Callable[[], object]) -> bool:
        self._is_asleep[0] = 1
        try:
            while not is_ready():
                ready = {key.fileobj for key, _ in self._selector.select(_MAX_SLEEP_SECONDS)}
                if self._connection in ready:
                    with suppress(ConnectionResetError):
                        os.read(self._connection.fileno(), 64)
                if self._request_pipe in ready:
                    return bool(is_ready())
            return True
        finally:
            self._is_asleep[0] = 0


def _preemption_count() -> int:
    """How often another process was given this thread's core while the thread was runnable (Linux)."""
    import resource

    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
