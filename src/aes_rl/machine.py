"""The cores that this process may use, and the signals that stop it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def cores() -> int:
    """Cores that this process may run on; `taskset` or a job scheduler may restrict them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_shares(count: int) -> list[frozenset[int]]:
    """This process's cores in `count` shares of neighbours; none if there are too few or processes cannot be bound."""
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(own) < count:
        return []
    return [frozenset(own[number * len(own) // count : (number + 1) * len(own) // count]) for number in range(count)]


@contextmanager
def on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of the first SIGINT or SIGTERM; a second one raises KeyboardInterrupt.

    So a second signal ends any wait. Has no effect outside the main thread.
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
        print("stopping after the current work is finished and saved; a second signal stops at once", file=sys.stderr)
        handle(number)

    before = {kind: signal.signal(kind, take) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
