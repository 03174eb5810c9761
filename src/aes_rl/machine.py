"""What this process may use of its machine."""

import os


def cores() -> int:
    """Processors that it may run on: fewer than there are under `taskset` or a scheduler that binds it to some."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
