"""Samplers for Stable-Baselines3: replay buffer classes, and `attach` for SAC, TD3 and DDPG.

    model = SAC("MlpPolicy", env, replay_buffer_class=SelectiveReplayBuffer,
                replay_buffer_kwargs={"sampler": Adaptive()})
    attach(model)
    model.learn(100_000)

Slots may be written in any order, so features that rely on neighbouring slots are rejected.
"""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl.errors import UserError
from aes_rl.integrations.attachment import AbstractAttachment, is_stored, rows_of
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.integrations.watched import Watched

require("stable_baselines3", "2.9", "3", "sb3")
from stable_baselines3 import DDPG, SAC, TD3  # noqa: E402
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples  # noqa: E402
from stable_baselines3.her import HerReplayBuffer  # noqa: E402

Array = NDArray[Any]
Slots = NDArray[np.int64]
_SUPPORTED = (SAC, TD3, DDPG)
_OF_HINDSIGHT = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"}
_NO_HINDSIGHT = (
    "hindsight replay (HerReplayBuffer) is not supported: it takes goals from later slots of an episode, and these "
    "samplers overwrite slots in any order"
)


class _Selective:
    """Shared part of the two buffers. The slot of a transition is row · n_envs + environment."""

    selection: Selection
    observations: Any
    next_observations: Any
    actions: Array
    pos: int
    full: bool
    buffer_size: int
    n_envs: int
    to_torch: Any
    _normalize_obs: Any
    _samples: ClassVar[type]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        *arguments: Any,
        sampler: Any,
        seed: int | None = None,
        total_updates: int | None = None,
        **options: Any,
    ):
        """`sampler` is a configuration such as `Adaptive()`. Annealed schedules need `total_updates`."""
        _refuse(options)
        is_dict = isinstance(observation_space, spaces.Dict)
        if is_dict != isinstance(self, DictReplayBuffer):
            raise UserError(
                f"the observation space is a {type(observation_space).__name__}, which a {type(self).__name__} cannot "
                f"hold; use replay_buffer_class=Selective{'Dict' if is_dict else ''}ReplayBuffer"
            )
        super().__init__(buffer_size, observation_space, *arguments, **options)  # type: ignore[call-arg]
        if self.n_envs > 1 and self.buffer_size == 1:
            raise UserError(
                f"buffer_size is {buffer_size} for {self.n_envs} environments; one step of all environments must not "
                f"overwrite the whole buffer: use at least {2 * self.n_envs}"
            )
        # By default the seed follows from the seed of the model, which seeds NumPy before it creates the buffer.
        seed = int(np.random.randint(2**31)) if seed is None else seed  # noqa: NPY002
        self.selection = Selection(sampler, self.buffer_size * self.n_envs, seed, total_updates)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        """Store one step of all environments."""
        slots = self.selection.place(self.n_envs)
        self.pos += 1  # the host's own counters
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0
        _write(self.observations, slots, obs)
        _write(self.next_observations, slots, next_obs)
        _write_rest(self, slots, action, reward, done, infos)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Draw a batch. Its importance weights are applied by `attach`, not here."""
        slots = slots_of(self.selection.draw(batch_size))
        observations, next_observations = (
            self._on_device(self._normalize_obs(_read(arrays, slots), env))
            for arrays in (self.observations, self.next_observations)
        )
        rest = (self.to_torch(part) for part in (_read(self.actions, slots), *_ends_and_rewards(self, slots, env)))
        actions, ends, rewards = rest
        return self._samples(observations, actions, next_observations, ends, rewards)

    def reset(self) -> None:
        """Remove all transitions and reset the sampler."""
        super().reset()  # type: ignore[misc]
        self.selection = self.selection.emptied()

    def discard(self) -> None:
        """Drop the last sampled batch, because it was not trained on."""
        self.selection.discard()

    def _on_device(self, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: self.to_torch(value) for key, value in values.items()}
        return self.to_torch(values)


class SelectiveReplayBuffer(_Selective, ReplayBuffer):
    """Stable-Baselines3's replay buffer with a sampler that chooses which slots are drawn and overwritten."""

    _samples = ReplayBufferSamples


class SelectiveDictReplayBuffer(_Selective, DictReplayBuffer):
    """`SelectiveReplayBuffer` for Dict observations."""

    _samples = DictReplayBufferSamples


class Attachment(AbstractAttachment):
    """SAC, TD3 or DDPG with weighted losses."""

    def __init__(self, model: Any):
        self._model = model
        super().__init__()

    @override
    def install(self) -> None:
        model, needs = self._model, self.selection().needs
        actor, critic = model.actor, model.critic
        # The loss per critic is ½(Q − y)² in SAC and (Q − y)² in TD3 and DDPG.
        factor = 1.0 if isinstance(model, SAC) else 0.5
        self.watch(critic, Watched("critic", critic, critic.q_networks, needs, factor), is_stored)
        if isinstance(model, SAC):
            self._watch_sac(Watched("actor", actor, [actor.mu, actor.log_std], needs))
        else:
            self.watch(actor, Watched("actor", actor, [actor.mu], needs))

    @override
    def selection(self) -> Selection:
        _check_buffer(self._model.replay_buffer)  # the model may have loaded another buffer
        selection: Selection = self._model.replay_buffer.selection
        return selection

    @override
    def device(self) -> torch.device:
        device: torch.device = self._model.device
        return device

    def _watch_sac(self, watched: Watched) -> None:
        """Watch SAC's actor, and weight the temperature loss, which uses its log probabilities."""
        model, actor = self._model, self._model.actor
        original = actor.action_log_prob
        log_probability: dict[str, torch.Tensor] = {}

        def action_log_prob(observation: Any) -> Any:
            pending = self.pending(rows_of(observation))
            if pending is None:
                return original(observation)
            self.open(watched, pending)
            try:
                action, log = original(observation)
            finally:
                watched.close()
            log_probability["last"] = log.detach().reshape(-1)
            return action, log

        def weigh(optimiser: Any, arguments: Any, options: Any) -> None:
            del optimiser, arguments, options
            pending = self.selection().pending
            if pending is not None and "last" in log_probability:
                surplus = log_probability.pop("last") + float(model.target_entropy)
                model.log_ent_coef.grad = -(pending.weights * surplus).mean().reshape(1)

        actor.action_log_prob = action_log_prob
        self._undo += [watched.remove, lambda: delattr(actor, "action_log_prob")]
        if model.ent_coef_optimizer is not None:
            self._undo.append(model.ent_coef_optimizer.register_step_pre_hook(weigh).remove)


def attach(model: OffPolicyAlgorithm) -> Attachment:
    """Weight the losses of SAC, TD3 or DDPG and give the sampler the norms and TD errors of every batch."""
    if not any(isinstance(model, kind) and type(model).train is kind.train for kind in _SUPPORTED):
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(
            f"{type(model).__name__} cannot be attached; supported are {names}, and subclasses that do not override "
            "train()"
        )
    if model.n_steps > 1:
        raise UserError(f"n_steps is {model.n_steps}; n-step returns need neighbouring slots, use n_steps=1")
    if getattr(model, "use_sde", False):
        raise UserError(
            "use_sde is on; state-dependent exploration has no closed form for the per-sample norms, use use_sde=False"
        )
    return Attachment(model)


def _check_buffer(buffer: Any) -> None:
    if isinstance(buffer, _Selective):
        return
    if isinstance(buffer, HerReplayBuffer):
        raise TypeError(_NO_HINDSIGHT)
    raise TypeError(
        f"the model's replay buffer is a {type(buffer).__name__}; make the model with "
        "replay_buffer_class=SelectiveReplayBuffer (SelectiveDictReplayBuffer for Dict observations), and load "
        "a buffer that was saved from one"
    )


def _refuse(options: dict[str, Any]) -> None:
    if not _OF_HINDSIGHT.isdisjoint(options):
        raise UserError(_NO_HINDSIGHT)
    if options.get("optimize_memory_usage"):
        raise UserError(
            "optimize_memory_usage stores next observations in the next slot, and these samplers overwrite slots in "
            "any order; use optimize_memory_usage=False"
        )
    if options.get("n_steps", 1) != 1:
        raise UserError(f"n_steps is {options['n_steps']}; n-step returns need neighbouring slots, use n_steps=1")


def _flat(array: Array) -> Array:
    """A view of [rows, environments, …] as [slots, …]."""
    return array.reshape(-1, *array.shape[2:])


def _write(arrays: Any, slots: Slots, values: Any) -> None:
    """Write to an array, or to each array of a dictionary."""
    if isinstance(arrays, dict):
        for key, array in arrays.items():
            _write(array, slots, values[key])
        return
    flat = _flat(arrays)
    flat[slots] = np.asarray(values).reshape(len(slots), *flat.shape[1:])


def _read(arrays: Any, slots: Slots) -> Any:
    """Read from an array, or from each array of a dictionary."""
    if isinstance(arrays, dict):
        return {key: _read(array, slots) for key, array in arrays.items()}
    return _flat(arrays)[slots]


def _write_rest(buffer: Any, slots: Slots, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
    _write(buffer.actions, slots, action)
    _write(buffer.rewards, slots, reward)
    _write(buffer.dones, slots, done)
    if buffer.handle_timeout_termination:
        _write(buffer.timeouts, slots, [info.get("TimeLimit.truncated", False) for info in infos])


def _ends_and_rewards(buffer: Any, slots: Slots, env: Any) -> tuple[Array, Array]:
    """Terminations (time limits excluded) and rewards, each [B, 1]."""
    ends = _read(buffer.dones, slots) * (1 - _read(buffer.timeouts, slots))
    return ends.reshape(-1, 1), buffer._normalize_reward(_read(buffer.rewards, slots).reshape(-1, 1), env)
