"""What this process may use of its machine, and how it is told to stop."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def cores() -> int:
    """Processors that it may run on: fewer than there are under `taskset` or a scheduler that binds it to some."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_out(runs: int) -> list[frozenset[int]]:
    """Its processors in as many shares, neighbours together; none where processes cannot be bound or cores are few."""
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(own) < runs:
        return []
    return [frozenset(own[number * len(own) // runs : (number + 1) * len(own) // runs]) for number in range(runs)]


@contextmanager
def on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of the first SIGINT or SIGTERM; a second one raises KeyboardInterrupt.

    So a second signal ends any wait. In another thread than the main one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_second = False

    def take(number: int, _: object) -> None:
        nonlocal is_second
        if is_second:
            raise KeyboardInterrupt
        is_second = True
        print("stopping: what is under way ends first, and is saved; a second signal stops at once", file=sys.stderr)
        handle(number)

    before = {kind: signal.signal(kind, take) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
