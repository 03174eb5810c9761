"""The environments of one process, stepped by a compiled loop on the simulators that Gymnasium made and resets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl.training.vector import simulator
from aes_rl.training.vector.compiled import loops
from aes_rl.training.vector.compiled.records import (
    SIMULATOR_ARRAYS,
    STEP_ARRAYS,
    address,
    environment_records,
    task_record,
)
from aes_rl.training.vector.compiled.tasks import Task
from aes_rl.training.vector.simulator import Environment
from aes_rl.training.vector.step_data import StepData
from aes_rl.training.vector.stepper import AbstractStepper


class CompiledStepper(AbstractStepper):
    """Steps environments whose class has a compiled loop."""

    def __init__(
        self,
        task: Task,
        environments: Sequence[Environment],
        data: StepData[NDArray[np.float32]],
        rows: Sequence[int],
    ):
        """With the row of the step data of every environment."""
        self.members = rows
        self.returns = np.zeros(len(environments))
        self.elapsed_steps = np.zeros(len(environments), np.int64)
        """Steps of every environment's episode so far; Gymnasium's own count is set when it is saved."""
        self.observation = np.zeros((len(environments), data.observation.shape[1]))
        """What Gymnasium would return, in its precision."""
        self._loop, self._limits = task.loop, [simulator.time_limit_of(environment) for environment in environments]
        simulated: list[Any] = [environment.unwrapped for environment in environments]
        middle, half_width = simulator.action_scale(environments[0])
        scaled = np.zeros_like(half_width)
        model, limit = simulated[0].model, self._limits[0]
        self._task = task_record(
            {
                **{name: getattr(model, name) for name in ("nq", "nv", "nu", "nbody")},
                "frames": simulated[0].frame_skip,
                "most_steps": limit._max_episode_steps if limit else np.iinfo(np.int64).max,
                "observation_size": self.observation.shape[1],
                "dt": simulated[0].dt,
                "action_middle": address(middle),
                "action_half_width": address(half_width),
                "action_scaled": address(scaled),
                "two": 2.0,
                **task.settings,
            }
        )
        arrays = [{name: getattr(own.data, name) for name in SIMULATOR_ARRAYS} for own in simulated]
        self._records = environment_records(
            [
                {
                    "model": own.model._address,
                    "data": own.data._address,
                    **{name: address(array) for name, array in arrays[position].items()},
                    **{f"step_{name}": address(getattr(data, name)[row : row + 1]) for name in STEP_ARRAYS},
                    "exact_observation": address(self.observation[position]),
                    "episode_return": address(self.returns[position : position + 1]),
                    "elapsed_steps": address(self.elapsed_steps[position : position + 1]),
                }
                for position, (own, row) in enumerate(zip(simulated, rows, strict=True))
            ]
        )
        self._selected = self._records
        self._steps_taken_over = self.elapsed_steps.copy()
        """Steps of every environment's episode when Gymnasium last reset or restored it."""
        self._simulated = simulated
        self._kept_alive = (arrays, data, middle, half_width, scaled)

    @override
    def step(self) -> bool:
        self._loop(self._task, self._selected)
        return bool(loops.deliver(self._task, self._selected))

    @override
    def select(self, positions: Sequence[int]) -> None:
        self._selected = self._records[list(positions)]

    @override
    def take_over(self, position: int) -> None:
        limit = self._limits[position]
        self.elapsed_steps[position] = (limit._elapsed_steps or 0) if limit else 0
        self._steps_taken_over[position] = self.elapsed_steps[position]

    @override
    def hand_back(self, position: int) -> None:
        import mujoco

        own = self._simulated[position]
        limit: Any = self._limits[position]  # Gymnasium types the count as None
        if self.elapsed_steps[position] > self._steps_taken_over[position]:
            mujoco.mj_rnePostConstraint(own.model, own.data)  # as Gymnasium does in every step
        if limit is not None:
            limit._elapsed_steps = int(self.elapsed_steps[position])
