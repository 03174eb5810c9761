"""Samplers for Tianshou 2: replay buffer classes, and `attach` for SAC, TD3 and DDPG.

    buffer = SelectiveVectorReplayBuffer(100_000, len(environments), sampler=Predictive())
    attach(algorithm, buffer, logger)

Tianshou chooses the place of each transition and relies on their order. A full buffer therefore always overwrites its
oldest transition, and the sampler's `overwrite` option has no effect.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from aes_rl import checks
from aes_rl.errors import UserError
from aes_rl.integrations.hooked import AbstractHookedAttachment, is_stored, without_steps
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Array as Places
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.integrations.watched import Watched
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.registry import overwriting_the_oldest, resolve
from aes_rl.samplers.rule import SamplerConfig

require("tianshou", "2.0", "3", "tianshou")
from tianshou.algorithm.modelfree.ddpg import DDPG  # noqa: E402
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACTrainingStats  # noqa: E402
from tianshou.algorithm.modelfree.td3 import TD3  # noqa: E402
from tianshou.data import Batch, ReplayBuffer, ReplayBufferManager, VectorReplayBuffer  # noqa: E402
from tianshou.data.batch import BatchProtocol  # noqa: E402
from tianshou.data.types import RolloutBatchProtocol  # noqa: E402
from tianshou.utils.logger.logger_base import BaseLogger  # noqa: E402
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode  # noqa: E402

Array = NDArray[Any]
Added = tuple[Array, Array, Array, Array]
"""What the host's `add` returns: places, returns, lengths and first places of episodes."""
BufferIds = Array | list[int] | None
Rows = dict[str, "Array | Rows"]
Supported = SAC[SACTrainingStats] | TD3 | DDPG
_SUPPORTED = (SAC, TD3, DDPG)
_COUNTERS = ("last_index", "_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx", "_lengths")
"""Attributes that the host changes before it writes a row. Only managers have the last one."""
_CHANGED_IN_PLACE = ("last_index", "_ep_return", "_lengths")


class _Selective(ReplayBuffer):
    """Shared part of the two buffers."""

    selection: Selection

    def _choose_by(self, sampler: SamplerConfig | str, seed: int, total_updates: int | None) -> None:
        config = overwriting_the_oldest(resolve(sampler))
        self.selection = Selection(config, self.maxsize, seed, total_updates)

    @property
    def options(self) -> dict[str, object]:
        """Raises: only the host's managers read this, to make the buffer one of their parts."""
        raise UserError(
            f"a {type(self).__name__} cannot be part of a CachedReplayBuffer or another manager, which would write to "
            "it without its sampler; use SelectiveVectorReplayBuffer"
        )

    @options.setter
    def options(self, options: dict[str, object]) -> None:
        self.__dict__["options"] = options

    @override
    def add(self, batch: RolloutBatchProtocol, buffer_ids: BufferIds = None) -> Added:
        """Store transitions in the places that the host chooses."""
        with self._all_or_nothing(self._written_by_add(buffer_ids)):
            result = super().add(batch, buffer_ids)
        self.selection.follow(np.asarray(result[0]).reshape(-1))
        return result

    @override
    def update(self, buffer: ReplayBuffer) -> Places:
        """Copy the transitions of another buffer into this one."""
        with self._all_or_nothing({0: len(buffer)}):
            places: Places = super().update(buffer)
        self.selection.follow(np.asarray(places).reshape(-1))
        return places

    @override
    def set_batch(self, batch: RolloutBatchProtocol) -> None:
        """Replace all transitions. The sampler treats them as new."""
        self.selection.settle()
        super().set_batch(batch)
        self.selection.follow(super().sample_indices(0))

    @override
    def sample_indices(self, batch_size: int | None) -> Places:
        """Draw places with the sampler. Without a batch size, return all places, as the host does."""
        if batch_size is None or batch_size <= 0:
            every: Places = super().sample_indices(batch_size)
            return every
        held = sum(len(part) for part, _ in self._parts())
        if held != len(self.selection):
            raise UserError(
                f"the buffer holds {held} transitions and its sampler has {len(self.selection)}: the buffer was "
                "changed without the sampler; use only its own add, update, set_batch and reset"
            )
        return self.selection.places_of(slots_of(self.selection.draw(batch_size)))

    @override
    def reset(self, keep_statistics: bool = False) -> None:
        """Remove all transitions and reset the sampler."""
        super().reset(keep_statistics)
        self.selection = self.selection.emptied()

    def discard(self) -> None:
        """Drop the last sampled batch, because it was not trained on."""
        self.selection.discard()

    def _parts(self) -> list[tuple[ReplayBuffer, int]]:
        """The buffers that store rows, and the first place of each."""
        return [(self, 0)]

    def _written_by_add(self, buffer_ids: Iterable[int] | None) -> dict[int, int]:
        """Number of rows that `add` writes, by part."""
        del buffer_ids
        return {0: 1}

    @contextmanager
    def _all_or_nothing(self, written: dict[int, int]) -> Iterator[None]:
        """Restore the buffer if the host fails while it stores the given number of rows per part."""
        self.selection.settle()  # raises if the last batch has no feedback, before anything is stored
        parts = self._parts()
        rows_of = (_next_places(*parts[part], count) for part, count in written.items())
        places = np.array([place for own in rows_of for place in own], np.int64)
        buffers = dict.fromkeys([self, *(parts[part][0] for part in written)])
        counters = [_counters(buffer) for buffer in buffers]
        meta = self._meta
        rows = _read(meta, places)
        try:
            yield
        except BaseException:
            for buffer, saved in zip(buffers, counters, strict=True):
                vars(buffer).update({name: saved[name] for name in _COUNTERS if name in saved})
            self._meta = meta
            _write(meta, places, rows)
            raise


class SelectiveReplayBuffer(_Selective, ReplayBuffer):
    """Tianshou's replay buffer with a sampler that chooses which transitions are drawn."""

    def __init__(
        self,
        size: int,
        *,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        seed: int = 0,
        total_updates: int | None = None,
        **options: Any,
    ):
        """`sampler` is a configuration or a name, `Adaptive()` or "adaptive"; annealed ones need `total_updates`."""
        _refuse(options)
        super().__init__(size, **options)
        self._choose_by(sampler, seed, total_updates)

    @classmethod
    def from_data(
        cls,
        *data: Any,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        seed: int = 0,
        total_updates: int | None = None,
        **named: Any,
    ) -> "SelectiveReplayBuffer":
        """A full buffer of recorded transitions, with the arguments of the host's `from_data`."""
        host = ReplayBuffer.from_data(*data, **named)
        buffer = cls(len(host), sampler=sampler, seed=seed, total_updates=total_updates)
        buffer._size = len(host)
        buffer.set_batch(host._meta)
        return buffer


class _Part(ReplayBuffer):
    """One environment's part of a vector buffer. Only the vector buffer may write to it."""

    @override
    def add(self, batch: RolloutBatchProtocol, buffer_ids: BufferIds = None) -> NoReturn:
        del batch, buffer_ids
        raise UserError(
            "a part of a SelectiveVectorReplayBuffer cannot be written to directly, because its sampler would miss it; "
            "use add(batch, buffer_ids=[…]) of the vector buffer"
        )

    @override
    def update(self, buffer: ReplayBuffer) -> NoReturn:
        self.add(buffer._meta)


class SelectiveVectorReplayBuffer(_Selective, VectorReplayBuffer):
    """`SelectiveReplayBuffer` for several environments, each with its own part of the buffer."""

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        seed: int = 0,
        total_updates: int | None = None,
        **options: Any,
    ):
        """`sampler` is a configuration or a name, `Adaptive()` or "adaptive"; annealed ones need `total_updates`."""
        _refuse(options)
        checks.count("buffer_num", buffer_num)
        size = int(np.ceil(total_size / buffer_num))
        parts: list[ReplayBuffer] = [_Part(size, **options) for _ in range(buffer_num)]
        ReplayBufferManager.__init__(self, parts)
        self._choose_by(sampler, seed, total_updates)

    @classmethod
    def from_data(cls, *data: object, **options: object) -> NoReturn:
        """Raises: recorded data does not say which environment a transition is from."""
        del data, options
        raise UserError("from_data fills a buffer of one environment; use SelectiveReplayBuffer.from_data")

    @override
    def _parts(self) -> list[tuple[ReplayBuffer, int]]:
        return list(zip(self.buffers, self._offset, strict=True))

    @override
    def _written_by_add(self, buffer_ids: Iterable[int] | None) -> dict[int, int]:
        return Counter(range(self.buffer_num) if buffer_ids is None else map(int, buffer_ids))


class Attachment(AbstractHookedAttachment):
    """SAC, TD3 or DDPG with weighted losses."""

    def __init__(self, algorithm: Supported, buffer: _Selective, logger: BaseLogger | None, measure_every: int | None):
        self._algorithm, self._buffer, self._logger = algorithm, buffer, logger
        super().__init__(algorithm, measure_every)

    @override
    def install(self) -> None:
        algorithm, needs = self._algorithm, self.needs
        for name in ("critic", "critic2"):
            critic = getattr(algorithm, name, None)
            if critic is not None:
                self.watch(critic, Watched("critic", critic, [critic], needs, error_factor=0.5), is_stored)
        actor = algorithm.policy.actor
        _check_actor(actor)
        self.watch(actor, Watched("actor", actor, [actor], needs))
        if isinstance(algorithm, SAC) and isinstance(algorithm.alpha, AutoAlpha):
            self._weigh_temperature(algorithm.alpha)
        self._settle_after_updates()
        if self._logger is not None:
            self._log_to(self._logger)

    @override
    def selection_of_buffer(self) -> Selection:
        return self._buffer.selection

    @override
    def device(self) -> torch.device:
        return next(self._algorithm.policy.parameters()).device

    @override
    def differentiate(self, slots: Places) -> None:
        places = self.selection().places_of(slots)
        twin = copy.copy(self._algorithm)
        vars(twin).update(_cnt=0, _update_lagged_network_weights=_do_nothing)  # TD3 trains its actor in this update
        optimizers = [optimizer._optim for optimizer in twin._optimizers]
        if isinstance(twin, SAC) and isinstance(twin.alpha, AutoAlpha):
            optimizers.append(twin.alpha._optim)
        with policy_within_training_step(twin.policy), without_steps(optimizers):
            batch = twin._preprocess_batch(self._buffer[places], self._buffer, places)
            with torch_train_mode(twin):
                twin._update_with_batch(batch)

    def _log_to(self, logger: BaseLogger) -> None:
        """Add the metrics to the update data that the logger writes."""
        original, before = logger.log_update_data, vars(logger).get("log_update_data")
        is_attached = True

        def log_update_data(log_data: dict[str, object], step: int) -> None:
            if is_attached and step - logger.last_log_update_step >= logger.update_interval:
                log_data = log_data | {f"selection/{name}": value for name, value in self.metrics().items()}
            original(log_data, step)

        vars(logger)["log_update_data"] = log_update_data

        def leave() -> None:
            nonlocal is_attached
            is_attached = False
            if vars(logger)["log_update_data"] is not log_update_data:
                return  # an attachment that came later calls this one
            if before is None:
                del vars(logger)["log_update_data"]
            else:
                vars(logger)["log_update_data"] = before

        self._undo.append(leave)

    def _settle_after_updates(self) -> None:
        """Give the feedback when an update ends: later passes over other data are neither weighted nor reported."""
        original = self._algorithm._postprocess_batch

        def postprocess(*arguments: Any) -> None:
            original(*arguments)
            self.report()

        vars(self._algorithm)["_postprocess_batch"] = postprocess
        self._undo.append(partial(vars(self._algorithm).pop, "_postprocess_batch"))

    def _weigh_temperature(self, alpha: AutoAlpha) -> None:
        original, target = alpha.update, alpha._target_entropy

        def update(entropy: torch.Tensor) -> float:
            pending = self.current()
            if pending is not None:
                # The loss is a mean and linear in (target − entropy), so weighting that difference weights the loss.
                entropy = target - pending.weights.reshape(entropy.shape) * (target - entropy)
            return original(entropy)

        vars(alpha)["update"] = update
        self._undo.append(partial(vars(alpha).pop, "update"))


def attach(
    algorithm: Supported, buffer: ReplayBuffer, logger: BaseLogger | None = None, measure_every: int | None = None
) -> Attachment:
    """Weight the losses of SAC, TD3 or DDPG and give the sampler the norms and TD errors of every batch.

    Args:
        algorithm: The algorithm.
        buffer: The buffer that it is trained from.
        logger: The trainer's logger. What `Attachment.metrics` returns is added to the update data that it writes, with
            the prefix "selection/".
        measure_every: Number of updates after which the next log also measures the captured fraction; None for never.
    """
    if type(algorithm) not in _SUPPORTED:
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(f"{type(algorithm).__name__} cannot be attached; supported are {names}")
    if not isinstance(buffer, _Selective):
        raise TypeError(
            f"the buffer is a {type(buffer).__name__}; use a SelectiveReplayBuffer, or a SelectiveVectorReplayBuffer "
            "for several environments"
        )
    return Attachment(algorithm, buffer, logger, measure_every)


def _check_actor(actor: nn.Module) -> None:
    if isinstance(getattr(actor, "sigma_param", None), nn.Parameter):
        raise TypeError(
            f"{type(actor).__name__} has a state-independent standard deviation, and its per-sample norm has no closed "
            "form here; use conditioned_sigma=True"
        )


def _next_places(buffer: ReplayBuffer, begins: int, count: int) -> list[int]:
    """The distinct places that the next `count` rows are written to."""
    first, size = buffer._insertion_idx, buffer.maxsize
    return [begins + (first + row) % size for row in range(min(count, size))]


def _counters(buffer: ReplayBuffer) -> dict[str, object]:
    saved = dict(vars(buffer))
    for name in _CHANGED_IN_PLACE:
        if isinstance(saved.get(name), np.ndarray):
            saved[name] = saved[name].copy()
    return saved


def _read(batch: BatchProtocol, places: Places) -> Rows:
    """Copy rows. Ten times as fast as the host's own indexing."""
    return {
        key: _read(values, places) if type(values) is Batch else values[places] for key, values in vars(batch).items()
    }


def _write(batch: BatchProtocol, places: Places, rows: Rows) -> None:
    for key, values in rows.items():
        if isinstance(values, dict):
            _write(batch[key], places, values)
        else:
            batch[key][places] = values


def _do_nothing() -> None:
    pass


def _refuse(options: dict[str, object]) -> None:
    if options.get("stack_num", 1) != 1:
        raise UserError(f"stack_num is {options['stack_num']}; stacked frames are not supported, use stack_num=1")
