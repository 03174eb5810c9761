"""One environment a member, stepped in worker processes through shared memory while the learner updates."""

import math
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from aes_rl.training import simulator
from aes_rl.training.simulator import Saved

Array = np.ndarray[Any, Any]


class Sizes(NamedTuple):
    """What a task looks like to an agent."""

    observation: int
    action: int


def sizes_of(task: str) -> Sizes:
    """Observation and action sizes of a task."""
    environment = simulator.make(task)
    assert environment.observation_space.shape is not None
    assert environment.action_space.shape is not None
    sizes = Sizes(environment.observation_space.shape[0], environment.action_space.shape[0])
    environment.close()
    return sizes


class Board:
    """The arrays through which learner and environments talk, one row a member."""

    def __init__(self, memory: Any, members: int, sizes: Sizes):
        """Views of `memory`, an array or a tensor of `board_size` float32 numbers."""
        self.memory = memory
        views, start = {}, 0
        for name, shape in _shapes(members, sizes).items():
            count = math.prod(shape)
            views[name] = memory[start : start + count].reshape(shape)
            start += count
        self.action, self.observation = views["action"], views["observation"]
        """The next action, in [−1, 1]; what the agent sees next, after a reset where an episode ended."""
        self.next_observation, self.reward = views["next_observation"], views["reward"]
        self.terminated, self.ended = views["terminated"], views["ended"]
        """1 where the task ended; 1 where the episode did, by its end or by the time limit."""
        self.episode_return, self.is_idle = views["episode_return"], views["is_idle"]
        """Return of the episode that just ended, where one did; 1 where an environment is not to step."""


def board_size(members: int, sizes: Sizes) -> int:
    """How many numbers a board holds."""
    return sum(map(math.prod, _shapes(members, sizes).values()))


def _shapes(members: int, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {
        "action": (members, sizes.action),
        "observation": (members, sizes.observation),
        "next_observation": (members, sizes.observation),
        "reward": (members,),
        "terminated": (members,),
        "ended": (members,),
        "episode_return": (members,),
        "is_idle": (members,),
    }


class Group:
    """Some members' environments in this process, reading and writing their rows of a board."""

    def __init__(self, task: str, members: Sequence[int], seeds: Sequence[int], board: Board):
        self._members = list(members)
        self._board = board
        self._environments = [simulator.make(task) for _ in self._members]
        self._returns: list[float] = []
        space: Any = self._environments[0].action_space
        self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2
        self.reset(seeds)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode of every environment, with its seed."""
        self._returns = [0.0] * len(self._members)
        for member, environment, seed in zip(self._members, self._environments, seeds, strict=True):
            self._board.observation[member], _ = environment.reset(seed=seed)

    def step(self) -> None:
        """Step every environment with its member's action, and reset those whose episode ended."""
        board = self._board
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            if board.is_idle[member]:
                continue
            action = self._middle + self._half * board.action[member]
            observation, reward, terminated, truncated, _ = environment.step(action)
            self._returns[position] += float(reward)
            board.next_observation[member] = observation
            board.reward[member] = reward
            board.terminated[member] = terminated
            board.ended[member] = terminated or truncated
            if terminated or truncated:
                board.episode_return[member] = self._returns[position]
                self._returns[position] = 0.0
                observation, _ = environment.reset()
            board.observation[member] = observation

    def save(self) -> list[tuple[int, Saved | None, float]]:
        """Each member's environment, with the return so far of its episode."""
        saved = [simulator.save(environment) for environment in self._environments]
        return list(zip(self._members, saved, self._returns, strict=True))

    def restore(self, saved: dict[int, tuple[Saved | None, float]]) -> None:
        """Continue; an environment that could not be saved starts a new episode."""
        for position, (member, environment) in enumerate(zip(self._members, self._environments, strict=True)):
            state, self._returns[position] = saved[member]
            if state is None:
                self._board.observation[member], _ = environment.reset()
                self._returns[position] = 0.0
            else:
                simulator.restore(environment, state)

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()


class Environments:
    """All members' environments: `send` actions, do something else, `receive`."""

    def __init__(self, task: str, seeds: Sequence[int], workers: int):
        """Reset every environment with its seed; `workers` of 0 steps them in this process."""
        self.task = task
        sizes = sizes_of(task)
        members = len(seeds)
        self._workers: list[_Worker] = []
        self._group: Group | None = None
        if workers == 0:
            self.board = Board(np.zeros(board_size(members, sizes), np.float32), members, sizes)
            self._group = Group(task, range(members), seeds, self.board)
            return
        path = _shared_file()
        self.board = _mapped_board(path, members, sizes)
        for part in np.array_split(np.arange(members), min(workers, members)):
            own = [int(member) for member in part]
            self._workers.append(_Worker(task, own, [seeds[m] for m in own], members, sizes, path))
        for worker in self._workers:
            worker.answer()
        os.unlink(path)  # everybody has mapped it, and it goes when the last of them does

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode of every environment, with its seed, and let all of them step again."""
        self.board.is_idle[...] = 0
        if self._group is not None:
            self._group.reset(seeds)
        for worker in self._workers:
            worker.ask(("reset", [seeds[member] for member in worker.members]))
        for worker in self._workers:
            worker.answer()

    def send(self, action: Array) -> None:
        """Let every environment take its action."""
        self.board.action[...] = action
        for worker in self._workers:
            worker.ask("step")

    def receive(self) -> Board:
        """Wait until every environment has stepped; the board with what came of it."""
        if self._group is not None:
            self._group.step()
        for worker in self._workers:
            worker.answer()
        return self.board

    def save(self) -> dict[int, tuple[Saved | None, float]]:
        """Every member's environment between two steps."""
        if self._group is not None:
            return {member: (state, total) for member, state, total in self._group.save()}
        for worker in self._workers:
            worker.ask("save")
        return {member: (state, total) for worker in self._workers for member, state, total in worker.answer()}

    def restore(self, saved: dict[int, tuple[Saved | None, float]], observation: Array) -> None:
        """Continue from a saved state; `observation` is what the agent saw last."""
        self.board.observation[...] = observation
        if self._group is not None:
            self._group.restore(saved)
        for worker in self._workers:
            worker.ask(("restore", {member: saved[member] for member in worker.members}))
        for worker in self._workers:
            worker.answer()

    def close(self) -> None:
        """End the workers."""
        if self._group is not None:
            self._group.close()
        for worker in self._workers:
            worker.close()


class _Worker:
    """A process with a pipe. Either end notices when the other is gone: reading from the pipe ends."""

    def __init__(self, task: str, members: list[int], seeds: list[int], count: int, sizes: Sizes, path: str):
        self.task, self.members = task, members
        context = multiprocessing.get_context("spawn")  # a forked child would keep its siblings' pipes open
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, task, members, seeds, count, sizes, path), daemon=True
        )
        self._process.start()
        theirs.close()

    def ask(self, request: Any) -> None:
        try:
            self._pipe.send(request)
        except (BrokenPipeError, OSError) as error:
            raise RuntimeError(self._obituary()) from error

    def answer(self) -> Any:
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(self._obituary()) from error
        if kind == "failed":
            raise RuntimeError(f"an environment of members {self.members} ({self.task}) failed:\n{content}")
        return content

    def close(self) -> None:
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    def _obituary(self) -> str:
        self._process.join(timeout=1)
        return (
            f"the process that steps members {self.members} of {self.task} died (exit code {self._process.exitcode}); "
            "the last checkpoint is intact, resume from it"
        )


def _shared_file() -> str:
    """A file in memory where the system has such a folder, else in the ordinary temporary folder."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    handle, path = tempfile.mkstemp(prefix="aes-rl-", dir=folder)
    os.close(handle)
    return path


def _mapped_board(path: str, members: int, sizes: Sizes) -> Board:
    """A board in a file that several processes map; the first grows the file to its size."""
    return Board(np.memmap(path, np.float32, "r+", shape=(board_size(members, sizes),)), members, sizes)


def _work(
    pipe: Connection, task: str, members: list[int], seeds: list[int], count: int, sizes: Sizes, path: str
) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    board = _mapped_board(path, count, sizes)
    try:
        group = Group(task, members, seeds, board)
        pipe.send(("done", None))
        while True:
            request = pipe.recv()
            if request == "step":
                group.step()
                pipe.send(("done", None))
            elif request == "save":
                pipe.send(("done", group.save()))
            else:
                kind, content = request
                (group.reset if kind == "reset" else group.restore)(content)
                pipe.send(("done", None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
