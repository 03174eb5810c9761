"""How the learner and a worker wait for each other's turn: by looking, or asleep until the other one rings.

Looking is the fastest, and takes a whole core. So whoever waits looks only as long as nobody else has work for its
core, and sleeps where several runs share a machine or there are more processes than cores.

What one side writes before its turn's number the other must see before it. So it is on x86. Other processors may
reorder writes: there every turn is rung, and whoever waits takes its number for good only after it has read the ring,
since a write to a pipe and the read of it put all that came before in order.
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
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
"""Whether this processor shows one process's writes to another in the order in which they were made."""
_LOOK_FOR = 0.002
"""Seconds to look at most; a wait that long means that the other side is busy with something else."""
_LOOKS_A_CHECK = 200
"""Looks between two checks of the clock, the pipe and the core."""
_SLEEPS_A_LOOK = 100
"""Waits to sleep through, once somebody else had work for the core, before looking again."""
_LONGEST_SLEEP = 0.01
"""Seconds between two looks of a sleeper: the other side may not ring if it has not seen yet that this one sleeps."""


class Bell:
    """One end of a bell: wait for the other end, and wake it if it sleeps."""

    def __init__(self, line: Connection, pipe: Connection, own_sleep: Array, other_sleep: Array):
        """Ring on `line`, watch `pipe`; numbers in shared memory are not 0 while this end, or the other, sleeps."""
        self._line, self._pipe = line, pipe
        self._own_sleep, self._other_sleep = own_sleep, other_sleep
        self._selector = selectors.DefaultSelector()
        for connection in (line, pipe):
            self._selector.register(connection, selectors.EVENT_READ)
        # Elsewhere than on Linux a process does not learn that others want its core.
        self._sleeps_left: float = 0 if sys.platform == "linux" else math.inf

    def ring(self) -> None:
        """Wake the other end; what it waits for must be in shared memory by now."""
        if self._other_sleep[0] or not _KEEPS_ORDER:
            with suppress(BrokenPipeError, ConnectionResetError):  # whoever reads the pipe will notice
                os.write(self._line.fileno(), b"!")

    def wait(self, has_come: Callable[[], Any]) -> bool:
        """Wait for something in shared memory: True when it has come, False if there is something in the pipe first."""
        if not _KEEPS_ORDER:
            return self._listen()
        return self._look(has_come) or self._sleep(has_come)

    def close(self) -> None:
        """Let go of the line."""
        self._selector.close()
        self._line.close()

    def _look(self, has_come: Callable[[], Any]) -> bool:
        if self._sleeps_left:
            self._sleeps_left -= 1
            return False
        deadline, before = time.perf_counter() + _LOOK_FOR, _times_displaced()
        while time.perf_counter() < deadline:
            for _ in range(_LOOKS_A_CHECK):
                if has_come():
                    return True
            if self._pipe.poll(0):
                break
            os.sched_yield()
            if _times_displaced() > before:
                self._sleeps_left = _SLEEPS_A_LOOK
                break
        return False

    def _listen(self) -> bool:
        """Wait for the one ring of this turn."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._line in ready:
                with suppress(ConnectionResetError):
                    if os.read(self._line.fileno(), 1):
                        return True
            if self._pipe in ready or self._line in ready:  # or the other end is gone, which the pipe will tell
                return False

    def _sleep(self, has_come: Callable[[], Any]) -> bool:
        self._own_sleep[0] = 1
        try:
            while not has_come():
                ready = {key.fileobj for key, _ in self._selector.select(_LONGEST_SLEEP)}
                if self._line in ready:
                    with suppress(ConnectionResetError):
                        os.read(self._line.fileno(), 64)
                if self._pipe in ready:
                    return bool(has_come())
            return True
        finally:
            self._own_sleep[0] = 0


def _times_displaced() -> int:
    """How often another process was given this thread's core while it had work. Linux counts it by thread."""
    import resource

    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
