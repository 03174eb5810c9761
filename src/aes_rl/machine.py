"""What this process may use of its machine."""

import os


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
