"""What the compiled loops read and write: one record per task and one per environment, mostly addresses of arrays.

With them a loop has two arguments, however many arrays it works on. Every array that is passed to a compiled function
costs 0.15 µs per call.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

SIMULATOR_ARRAYS = (
    "qpos",
    "qvel",
    "ctrl",
    "xpos",
    "xipos",
    "site_xpos",
    "cinert",
    "cvel",
    "cfrc_ext",
    "qfrc_actuator",
    "qfrc_constraint",
)
"""Arrays of MuJoCo's `mjData` that tasks read; float64. They stay where they are as long as it exists."""
STEP_ARRAYS = ("action", "observation", "next_observation", "reward", "terminated", "ended")
"""Rows of the step data; float32."""

ENVIRONMENT = np.dtype(
    [
        ("model", np.intp),
        ("data", np.intp),
        *((name, np.intp) for name in SIMULATOR_ARRAYS),
        *((f"step_{name}", np.intp) for name in STEP_ARRAYS),
        ("exact_observation", np.intp),  # float64, as Gymnasium returns it
        ("episode_return", np.intp),  # float64, the return so far
        ("elapsed_steps", np.intp),  # int64, the steps of the episode so far
        # Results that one loop leaves for the next one:
        ("exact_reward", np.float64),
        ("has_terminated", np.bool_),
    ],
    align=True,
)
"""One environment: addresses in memory, and the results of a step."""

TASK = np.dtype(
    [
        *((name, np.int64) for name in ("nq", "nv", "nu", "nbody")),  # as in MuJoCo's model
        *((name, np.int64) for name in ("frames", "most_steps", "observation_size")),
        ("dt", np.float64),
        *((f"action_{name}", np.intp) for name in ("middle", "half_width", "scaled")),  # float32, [nu]
        ("two", np.float64),
        # Read from the environment by `tasks`; 0 where a task has no such setting.
        *((f"{name}_weight", np.float64) for name in ("forward", "control", "contact", "distance")),
        *((f"{name}_reward", np.float64) for name in ("healthy", "unhealthy")),
        ("terminates", np.bool_),
        *((f"{end}_{name}", np.float64) for name in ("height", "angle", "state", "contact") for end in ("low", "high")),
        *((f"first_{name}", np.int64) for name in ("position", "inertia", "velocity", "actuator_force", "force")),
        *((name, np.int64) for name in ("body", "target", "seen_coordinates", "seen_forces")),
        ("body_mass", np.intp),  # float64, [nbody]
        ("total_mass", np.float64),
        ("is_rewarded_before", np.bool_),
        ("is_dot_fused", np.bool_),
    ],
    align=True,
)
"""One task: sizes, and the weights and ranges of its observations, its reward and its termination."""


def task_record(values: Mapping[str, object]) -> NDArray[np.void]:
    """An array of one task record with these values, zero elsewhere."""
    record = np.zeros(1, TASK)
    for name, value in values.items():
        record[name] = value
    return record


def environment_records(addresses: Sequence[Mapping[str, int]]) -> NDArray[np.void]:
    """One record per environment."""
    records = np.zeros(len(addresses), ENVIRONMENT)
    for number, own in enumerate(addresses):
        for name, value in own.items():
            records[name][number] = value
    return records


def address(array: NDArray[np.generic]) -> int:
    """Where the elements of an array begin; they must be contiguous."""
    assert array.flags.c_contiguous
    return int(array.__array_interface__["data"][0])
