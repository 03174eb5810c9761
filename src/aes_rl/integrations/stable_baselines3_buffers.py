"""Replay buffers of Stable-Baselines3 whose slots are chosen by a sampler.

Slots may be written in any order. Features that rely on neighbouring slots need a sampler that overwrites the oldest
transition first, and are rejected with others; hindsight replay is always rejected.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl import checks
from aes_rl.errors import UserError
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Array as Slots
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.rule import SamplerConfig

require("stable_baselines3", "2.9", "3", "sb3")
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402
from stable_baselines3.her import HerReplayBuffer  # noqa: E402

Array = NDArray[Any]
Observations = Array | dict[str, Array]
_OF_HINDSIGHT = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"}
_NO_HINDSIGHT = (
    "hindsight replay (HerReplayBuffer) is not supported: it takes goals from later slots of an episode, and these "
    "samplers overwrite slots in any order"
)


class SelectiveReplayBuffer(ReplayBuffer):
    """Stable-Baselines3's replay buffer with a sampler that chooses which slots are drawn and overwritten.

    The slot of a transition is row · n_envs + environment. For Dict observations a `SelectiveDictReplayBuffer` is made.
    """

    _samples: ClassVar[Callable[..., ReplayBufferSamples]] = ReplayBufferSamples
    n_steps = 1  # of buffers that were saved before they had it
    _steps = 0
    """Number of steps stored since the buffer was empty, one transition of every environment each."""

    def __new__(
        cls, buffer_size: int = 0, observation_space: spaces.Space[Any] | None = None, *rest: object, **options: object
    ) -> "SelectiveReplayBuffer":
        """Choose the class by the observation space, as the host does. A copy or a loaded buffer keeps its class."""
        del buffer_size, rest, options
        is_dict = isinstance(observation_space, spaces.Dict)
        return super().__new__(SelectiveDictReplayBuffer if is_dict and cls is SelectiveReplayBuffer else cls)

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        *,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        seed: int | None = None,
        total_updates: int | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        **options: Any,
    ):
        """Create an empty buffer.

        Args:
            buffer_size: Number of transitions, over all environments.
            observation_space: Observation space.
            action_space: Action space.
            device: Device of the sampled tensors.
            n_envs: Number of environments.
            sampler: A configuration such as `Adaptive()`, or a sampler's name such as "adaptive".
            seed: Seed of the draws. By default it follows from the seed of the model.
            total_updates: Number of updates of the run, for annealed samplers. By default it follows from the arguments
                of the model and of `learn`.
            n_steps: Number of rewards in a return. Above one, the sampler must overwrite the oldest transition first.
            gamma: Discount of the rewards in an n-step return; that of the model.
            **options: Other options of the host's buffer. With `optimize_memory_usage`, observations are stored once,
                in a ring of one row more than the buffer has, and the sampler must overwrite the oldest first.
        """
        _refuse(options, observation_space)
        if isinstance(observation_space, spaces.Dict) != isinstance(self, DictReplayBuffer):
            raise UserError(
                f"the observation space is a {type(observation_space).__name__}, which a {type(self).__name__} cannot "
                "hold; use replay_buffer_class=SelectiveReplayBuffer, which chooses by the observation space"
            )
        super().__init__(buffer_size, observation_space, action_space, device, n_envs, **options)
        if self.n_envs > 1 and self.buffer_size == 1:
            raise UserError(
                f"buffer_size is {buffer_size} for {self.n_envs} environments; one step of all environments must not "
                f"overwrite the whole buffer: use at least {2 * self.n_envs}"
            )
        # The model seeds NumPy before it creates the buffer.
        seed = int(np.random.randint(2**31)) if seed is None else seed  # noqa: NPY002
        capacity = self.buffer_size * self.n_envs
        self.selection = Selection(sampler, capacity, seed, total_updates, length_is_inferred=True)
        checks.count("n_steps", n_steps)
        self.n_steps, self.gamma = n_steps, gamma
        if self.optimize_memory_usage:
            self._require_order("optimize_memory_usage is on", "optimize_memory_usage=False")
            self.observations = np.zeros((self.buffer_size + 1, *self.observations.shape[1:]), self.observations.dtype)
        if n_steps > 1:
            self._require_order(f"n_steps is {n_steps}", "n_steps=1")

    def _require_order(self, option: str, remedy: str) -> None:
        name = self.selection.name
        if not self.selection.keeps_order:
            raise UserError(
                f"{option}, and {name} does not overwrite the oldest transition first, so the next step of a "
                f'transition is unknown; use {name}(overwrite="fifo") or {remedy}'
            )

    @override
    def add(
        self,
        obs: Observations,
        next_obs: Observations,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, object]],
    ) -> None:
        """Store one step of all environments."""
        following = self.observations if self.optimize_memory_usage else self.next_observations
        arrays = [self.observations, following, self.actions, self.rewards, self.dones]
        values: list[Any] = [obs, next_obs, action, reward, done]
        if self.handle_timeout_termination:
            arrays.append(self.timeouts)
            values.append([info.get("TimeLimit.truncated", False) for info in infos])
        # Values that do not fit raise here, before a slot is taken.
        rows = [_rows(array, own, self.n_envs) for array, own in zip(arrays, values, strict=True)]
        slots = self.selection.place(self.n_envs)
        self.pos += 1  # the host's own counters
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0
        self._steps += 1
        places = [self._row_of(slots), self._row_of(slots, ahead=1)] + [slots] * (len(arrays) - 2)
        if self.optimize_memory_usage and self._steps > 1:
            self._end_where_cut(slots, places[0], rows[0])
        for array, place, row in zip(arrays, places, rows, strict=True):
            _write(array, place, row)

    def _end_where_cut(self, slots: Slots, places: Slots, observations: Array) -> None:
        """End episodes that were cut by a reset between two calls of `learn`: their last observation is overwritten."""
        is_cut = np.not_equal(_flat(self.observations)[places], observations).reshape(len(slots), -1).any(axis=1)
        _flat(self.dones)[(slots[is_cut] - self.n_envs) % self.selection.capacity] = 1

    @override
    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draw a batch. Its importance weights are applied by `attach`, not here."""
        pending = self.selection.draw(batch_size)
        pending.batch = self.rows_at(slots_of(pending), env)
        return pending.batch

    def rows_at(self, slots: Slots, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """The transitions in these slots as tensors."""
        if self.n_steps > 1:
            return self._returns_at(slots, env)
        observations, next_observations = self._observed(slots, slots, env)
        actions, rewards, ends, timeouts = (
            _flat(array)[slots] for array in (self.actions, self.rewards, self.dones, self.timeouts)
        )
        rewards = self._normalize_reward(rewards.reshape(-1, 1), env)
        ends = (ends * (1 - timeouts)).reshape(-1, 1)  # a time limit does not end the task
        return self._samples(observations, self._owned(actions), next_observations, *map(self._owned, (ends, rewards)))

    def _returns_at(self, slots: Slots, env: VecNormalize | None) -> ReplayBufferSamples:
        """As `rows_at`, with the discounted sum of up to n rewards and the observation after the last of them.

        The sum ends where an episode ends, is truncated, or has not been played further.
        """
        starts, environments = np.divmod(slots, self.n_envs)
        steps = np.arange(self.n_steps)
        rows = (starts[:, np.newaxis] + steps) % self.buffer_size, environments[:, np.newaxis]
        is_last = (self.dones[rows] > 0) | (self.timeouts[rows] > 0) | (rows[0] == (self.pos - 1) % self.buffer_size)
        lengths = np.where(is_last.any(axis=1), is_last.argmax(axis=1) + 1, self.n_steps)
        factors = np.where(steps < lengths[:, np.newaxis], np.float32(self.gamma) ** steps, 0)
        rewards = (self._normalize_reward(self.rewards[rows], env) * factors).sum(axis=1, keepdims=True)
        lasts = (starts + lengths - 1) % self.buffer_size * self.n_envs + environments
        ends = _flat(self.dones)[lasts] * (1 - _flat(self.timeouts)[lasts])
        discounts = np.float32(self.gamma) ** lengths
        columns = (column.astype(np.float32).reshape(-1, 1) for column in (ends, rewards, discounts))
        observations, next_observations = self._observed(slots, lasts, env)
        actions = self._owned(_flat(self.actions)[slots])
        return self._samples(observations, actions, next_observations, *map(self._owned, columns))

    def _observed(self, slots: Slots, lasts: Slots, env: VecNormalize | None) -> tuple[Any, Any]:
        """The observations of slots, and those after the steps in `lasts`, as tensors."""
        before = _read(self.observations, self._row_of(slots))
        if self.optimize_memory_usage:
            after = _read(self.observations, self._row_of(lasts, ahead=1))
        else:
            after = _read(self.next_observations, lasts)
        return self._on_device(self._normalize_obs(before, env)), self._on_device(self._normalize_obs(after, env))

    def _row_of(self, slots: Slots, ahead: int = 0) -> Slots:
        """Where the observations of these slots, or of `ahead` steps later, are stored.

        A ring of N + 1 rows holds the N + 1 observations of N steps. A step's row moves by one against its slot in
        every lap, so it follows from the step's number.
        """
        if not self.optimize_memory_usage:
            return slots
        rows, environments = np.divmod(slots, self.n_envs)
        newest = self._steps - 1
        steps = newest - (newest - rows) % self.buffer_size
        ring: Slots = (steps + ahead) % (self.buffer_size + 1) * self.n_envs + environments
        return ring

    @override
    def reset(self) -> None:
        """Remove all transitions and reset the sampler."""
        super().reset()
        self._steps = 0
        self.selection = self.selection.emptied()

    def discard(self) -> None:
        """Drop the last sampled batch, because it was not trained on."""
        self.selection.discard()

    def _on_device(self, values: Observations) -> torch.Tensor | dict[str, torch.Tensor]:
        if isinstance(values, dict):
            return {key: self._owned(value) for key, value in values.items()}
        return self._owned(values)

    def _owned(self, values: Array) -> torch.Tensor:
        """An array that nothing else uses, such as one read by indices, as a tensor; on the CPU without a copy."""
        return self.to_torch(values, copy=False)


class SelectiveDictReplayBuffer(SelectiveReplayBuffer, DictReplayBuffer):  # type: ignore[misc]
    """`SelectiveReplayBuffer` for Dict observations."""

    _samples = DictReplayBufferSamples  # type: ignore[assignment]


def selective(buffer: ReplayBuffer | None) -> SelectiveReplayBuffer:
    """The model's buffer, if it is one of ours."""
    if isinstance(buffer, SelectiveReplayBuffer):
        return buffer
    if isinstance(buffer, HerReplayBuffer):
        raise TypeError(_NO_HINDSIGHT)
    raise TypeError(
        f"the model's replay buffer is a {type(buffer).__name__}; make the model with "
        "replay_buffer_class=SelectiveReplayBuffer, and load a buffer that was saved from one"
    )


def _refuse(options: dict[str, object], observation_space: spaces.Space[Any]) -> None:
    if not _OF_HINDSIGHT.isdisjoint(options):
        raise UserError(_NO_HINDSIGHT)
    if options.get("optimize_memory_usage"):
        if isinstance(observation_space, spaces.Dict):
            raise UserError(
                "optimize_memory_usage is on, which the library does not have for Dict observations; use "
                "optimize_memory_usage=False"
            )
        if options.get("handle_timeout_termination", True):
            raise UserError(
                "optimize_memory_usage is on, which keeps no observation from after a time limit; add "
                "handle_timeout_termination=False to replay_buffer_kwargs, or use optimize_memory_usage=False"
            )


def _flat(array: Array) -> Array:
    """A view of [rows, environments, …] as [slots, …]."""
    return array.reshape(-1, *array.shape[2:])


def _rows(arrays: Observations, values: Any, count: int) -> Any:
    """Values as rows of an array, or of each array of a dictionary."""
    if isinstance(arrays, dict):
        return {key: _rows(array, values[key], count) for key, array in arrays.items()}
    return np.asarray(values, arrays.dtype).reshape(count, *arrays.shape[2:])


def _write(arrays: Observations, slots: Slots, rows: Any) -> None:
    """Write to an array, or to each array of a dictionary."""
    if isinstance(arrays, dict):
        for key, array in arrays.items():
            _write(array, slots, rows[key])
    else:
        _flat(arrays)[slots] = rows


def _read(arrays: Observations, slots: Slots) -> Observations:
    """Read from an array, or from each array of a dictionary."""
    if isinstance(arrays, dict):
        return {key: _flat(array)[slots] for key, array in arrays.items()}
    return _flat(arrays)[slots]
