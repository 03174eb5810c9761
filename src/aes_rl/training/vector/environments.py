"""Environments, one per member. Worker processes step them while the learner updates; the data is in shared memory."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aes_rl.training.vector.group import Group, Resumption
from aes_rl.training.vector.processes import EnvironmentWorker, SharedStepData, StepCounters
from aes_rl.training.vector.simulator import Saved
from aes_rl.training.vector.step_data import StepData, sizes_of, step_data_size


class Environments:
    """The environments of all members. To step them, `send` the actions, do other work, then `receive` the results."""

    def __init__(self, task: str, seeds: Sequence[int], workers: int):
        """Create every environment and reset it with its seed. With `workers=0`, `receive` steps in this process."""
        self.task = task
        sizes = sizes_of(task)
        members = len(seeds)
        self._workers: list[EnvironmentWorker] = []
        self._counters: StepCounters | None = None
        self._group: Group | None = None
        if workers == 0:
            self.data = StepData(np.zeros(step_data_size(members, sizes), np.float32), members, sizes)
            self._group = Group(task, range(members), seeds, self.data)
            return
        workers = min(workers, members)
        shared = SharedStepData(members, sizes, workers)
        self.data, self._counters = shared.data(), shared.counters()
        try:
            for number, part in enumerate(np.array_split(np.arange(members), workers)):
                own = [int(member) for member in part]
                own_seeds = [seeds[member] for member in own]
                self._workers.append(EnvironmentWorker(number, task, own, own_seeds, shared, self._counters))
            for worker in self._workers:
                worker.receive()
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment, with its seed."""
        if self._group is not None:
            self._group.reset(seeds)
        for worker in self._workers:
            worker.send(("reset", [seeds[member] for member in worker.members]))
        for worker in self._workers:
            worker.receive()

    def send(self, action: NDArray[np.float32]) -> None:
        """Start a step: give every environment its member's row of `action`, [P, A] in [−1, 1]."""
        self.data.action[...] = action
        if self._counters is not None:
            self._counters.requested += 1
        for worker in self._workers:
            worker.begin_step()

    def receive(self) -> StepData[NDArray[np.float32]]:
        """Wait until every environment has stepped; returns the data of the step, which the next step overwrites."""
        if self._group is not None:
            self._group.step()
        for worker in self._workers:
            worker.finish_step()
        return self.data

    def save(self) -> dict[int, tuple[Saved | None, float]]:
        """Between steps: each environment's state (None if it cannot be saved) and its episode's return so far."""
        if self._group is not None:
            return {member: (state, total) for member, state, total in self._group.save()}
        for worker in self._workers:
            worker.send("save")
        return {member: (state, total) for worker in self._workers for member, state, total in worker.receive()}

    def restore(self, resumptions: dict[int, Resumption]) -> None:
        """Continue from saved states, or with a new episode where there is none; updates `data.observation`."""
        if self._group is not None:
            self._group.restore(resumptions)
        for worker in self._workers:
            worker.send(("restore", {member: resumptions[member] for member in worker.members}))
        for worker in self._workers:
            worker.receive()

    def close(self) -> None:
        """Close the environments and end the workers."""
        if self._group is not None:
            self._group.close()
        for worker in self._workers:
            worker.close()
