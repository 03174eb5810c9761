"""Samplers for Stable-Baselines3: replay buffer classes, and `attach` for SAC, TD3 and DDPG.

    model = SAC("MlpPolicy", env, replay_buffer_class=SelectiveReplayBuffer)
    attach(model)
    model.learn(100_000)

Slots may be written in any order, so features that rely on neighbouring slots are rejected.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

from aes_rl.errors import UserError
from aes_rl.integrations.hooked import AbstractHookedAttachment, is_stored, rows_of, without_steps
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Array as Slots
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.integrations.watched import Watched
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.rule import SamplerConfig

require("stable_baselines3", "2.9", "3", "sb3")
from stable_baselines3 import DDPG, SAC, TD3  # noqa: E402
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.logger import Logger  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.type_aliases import (  # noqa: E402
    DictReplayBufferSamples,
    ReplayBufferSamples,
    TrainFreq,
    TrainFrequencyUnit,
)
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402
from stable_baselines3.her import HerReplayBuffer  # noqa: E402

Array = NDArray[Any]
Observations = Array | dict[str, Array]
_SUPPORTED = (SAC, TD3, DDPG)
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
            **options: Other options of the host's buffer.
        """
        _refuse(options)
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
        slots = self.selection.place(self.n_envs)
        self.pos += 1  # the host's own counters
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0
        _write(self.observations, slots, obs)
        _write(self.next_observations, slots, next_obs)
        _write(self.actions, slots, action)
        _write(self.rewards, slots, reward)
        _write(self.dones, slots, done)
        if self.handle_timeout_termination:
            _write(self.timeouts, slots, np.array([info.get("TimeLimit.truncated", False) for info in infos]))

    @override
    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draw a batch. Its importance weights are applied by `attach`, not here."""
        return self.rows_at(slots_of(self.selection.draw(batch_size)), env)

    def rows_at(self, slots: Slots, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """The transitions in these slots as tensors."""
        observations, next_observations = (
            self._on_device(self._normalize_obs(_read(arrays, slots), env))
            for arrays in (self.observations, self.next_observations)
        )
        actions, rewards, ends, timeouts = (
            _flat(array)[slots] for array in (self.actions, self.rewards, self.dones, self.timeouts)
        )
        rewards = self._normalize_reward(rewards.reshape(-1, 1), env)
        ends = (ends * (1 - timeouts)).reshape(-1, 1)  # a time limit does not end the task
        return self._samples(
            observations, self.to_torch(actions), next_observations, *map(self.to_torch, (ends, rewards))
        )

    @override
    def reset(self) -> None:
        """Remove all transitions and reset the sampler."""
        super().reset()
        self.selection = self.selection.emptied()

    def discard(self) -> None:
        """Drop the last sampled batch, because it was not trained on."""
        self.selection.discard()

    def _on_device(self, values: Observations) -> torch.Tensor | dict[str, torch.Tensor]:
        if isinstance(values, dict):
            return {key: self.to_torch(value) for key, value in values.items()}
        return self.to_torch(values)


class SelectiveDictReplayBuffer(SelectiveReplayBuffer, DictReplayBuffer):  # type: ignore[misc]
    """`SelectiveReplayBuffer` for Dict observations."""

    _samples = DictReplayBufferSamples  # type: ignore[assignment]


class Attachment(AbstractHookedAttachment):
    """SAC, TD3 or DDPG with weighted losses."""

    def __init__(self, model: SAC | TD3, measure_every: int | None):
        self._model = model
        self._logger: Logger | None = None
        super().__init__(model, measure_every)

    @override
    def install(self) -> None:
        model, needs = self._model, self.needs
        actor, critic = model.actor, model.critic
        # The loss per critic is ½δ² in SAC and δ² in TD3 and DDPG.
        factor = 1.0 if isinstance(model, SAC) else 0.5
        self.watch(critic, Watched("critic", critic, critic.q_networks, needs, factor), is_stored)
        if isinstance(model, SAC):
            heads = [actor.mu, actor.get_submodule("log_std")]
            self._watch_sac(model, Watched("actor", actor, heads, needs))
        else:
            self.watch(actor, Watched("actor", actor, [actor.mu], needs))
        # `learn` makes a logger, so it is known when the first update is made.
        self._undo += [critic.optimizer.register_step_post_hook(self._follow_logger).remove, self._leave_logger]
        self.selection().infer_length = partial(updates_of_run, model)

    @override
    def selection(self) -> Selection:
        return _selective(self._model.replay_buffer).selection  # the model may have loaded another buffer

    @override
    def device(self) -> torch.device:
        return self._model.device

    @override
    def differentiate(self, slots: Slots) -> None:
        model, buffer = self._model, _selective(self._model.replay_buffer)
        fixed, twin = copy.copy(buffer), copy.copy(model)
        vars(fixed)["sample"] = lambda _, env=None: buffer.rows_at(slots, env)
        twin.replay_buffer, twin.tau = fixed, 0.0
        twin._n_updates = getattr(model, "policy_delay", 1) - 1  # TD3 trains its actor in this update
        twin.set_logger(Logger(None, []))
        optimizers = [model.actor.optimizer, model.critic.optimizer]
        if isinstance(model, SAC) and model.ent_coef_optimizer is not None:
            optimizers.append(model.ent_coef_optimizer)
        was_training = model.policy.training
        with without_steps(optimizers):
            twin.train(gradient_steps=1, batch_size=len(slots))
        model.policy.set_training_mode(was_training)

    def _follow_logger(self, *arguments: object) -> None:
        """Add the metrics to everything that the model's current logger writes."""
        del arguments
        logger = self._model.logger
        if logger is self._logger:
            return
        self._leave_logger()
        self._logger, dump = logger, logger.dump

        def dump_with_metrics(step: int = 0) -> None:
            if logger.output_formats:
                for name, value in self.metrics().items():
                    logger.record(f"selection/{name}", value)
            dump(step)

        vars(logger)["dump"] = dump_with_metrics

    def _leave_logger(self) -> None:
        if self._logger is not None:
            del vars(self._logger)["dump"]
            self._logger = None

    def _watch_sac(self, model: SAC, watched: Watched) -> None:
        """Watch SAC's actor, and weight the temperature loss, which uses its log probabilities."""
        actor = model.actor
        original = actor.action_log_prob
        log_probability: dict[str, torch.Tensor] = {}

        def action_log_prob(observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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

        def weigh(*arguments: object) -> None:
            del arguments
            pending = self.current()
            if pending is not None and "last" in log_probability:
                surplus = log_probability.pop("last") + float(model.target_entropy)
                assert model.log_ent_coef is not None
                model.log_ent_coef.grad = -(pending.weights * surplus).mean().reshape(1)

        vars(actor)["action_log_prob"] = action_log_prob
        self._undo += [watched.remove, partial(vars(actor).pop, "action_log_prob")]
        if model.ent_coef_optimizer is not None:
            self._undo.append(model.ent_coef_optimizer.register_step_pre_hook(weigh).remove)


def attach(model: OffPolicyAlgorithm, measure_every: int | None = None) -> Attachment:
    """Weight the losses of SAC, TD3 or DDPG and give the sampler the norms and TD errors of every batch.

    What `Attachment.metrics` returns is added to the model's log, with the prefix "selection/".

    Args:
        model: The model, made with `replay_buffer_class=SelectiveReplayBuffer`.
        measure_every: Number of updates after which the next log also measures the captured fraction; None for never.
    """
    if not any(isinstance(model, kind) and type(model).train is kind.train for kind in _SUPPORTED):
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(
            f"{type(model).__name__} cannot be attached; supported are {names}, and subclasses that do not override "
            "train()"
        )
    assert isinstance(model, SAC | TD3)
    if model.n_steps > 1:
        raise UserError(f"n_steps is {model.n_steps}; n-step returns need neighbouring slots, use n_steps=1")
    if getattr(model, "use_sde", False):
        raise UserError(
            "use_sde is on; state-dependent exploration has no closed form for the per-sample norms, use use_sde=False"
        )
    return Attachment(model, measure_every)


def updates_of_run(model: OffPolicyAlgorithm) -> int:
    """Number of updates that the current call of `learn` makes.

    A rollout is F = train_freq · n_envs steps. After every rollout that ends later than learning_starts, the model
    makes gradient_steps updates (F if negative). For T steps in all: gradient_steps · (⌈T/F⌉ − ⌊learning_starts/F⌋).
    """
    frequency, start = model.train_freq, model._num_timesteps_at_start
    steps = model._total_timesteps - start
    if steps <= 0:
        raise UserError(
            "the length of the run is unknown before learn(), and a transition was stored: give total_updates in "
            "replay_buffer_kwargs"
        )
    assert isinstance(frequency, TrainFreq)
    waiting = max(0, model.learning_starts - start)
    if frequency.unit is TrainFrequencyUnit.EPISODE:
        if model.gradient_steps >= 0:
            raise UserError(
                f"train_freq is {frequency.frequency} episodes of unknown length, so the number of updates is unknown: "
                "give total_updates in replay_buffer_kwargs"
            )
        return max(1, steps - waiting)  # one update per step, up to the length of an episode
    rollout = frequency.frequency * model.n_envs
    rollouts = -(-steps // rollout) - waiting // rollout
    return max(1, rollouts * (model.gradient_steps if model.gradient_steps >= 0 else rollout))


def _selective(buffer: ReplayBuffer | None) -> SelectiveReplayBuffer:
    if isinstance(buffer, SelectiveReplayBuffer):
        return buffer
    if isinstance(buffer, HerReplayBuffer):
        raise TypeError(_NO_HINDSIGHT)
    raise TypeError(
        f"the model's replay buffer is a {type(buffer).__name__}; make the model with "
        "replay_buffer_class=SelectiveReplayBuffer, and load a buffer that was saved from one"
    )


def _refuse(options: dict[str, object]) -> None:
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


def _write(arrays: Observations, slots: Slots, values: Observations) -> None:
    """Write to an array, or to each array of a dictionary."""
    if isinstance(arrays, dict):
        for key, array in arrays.items():
            _write(array, slots, values[key])
        return
    flat = _flat(arrays)
    flat[slots] = np.asarray(values).reshape(len(slots), *flat.shape[1:])


def _read(arrays: Observations, slots: Slots) -> Observations:
    """Read from an array, or from each array of a dictionary."""
    if isinstance(arrays, dict):
        return {key: _flat(array)[slots] for key, array in arrays.items()}
    return _flat(arrays)[slots]
