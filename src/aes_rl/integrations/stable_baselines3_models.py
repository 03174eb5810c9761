"""Attachments to the models of Stable-Baselines3. Their training steps are not changed."""

import copy
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss
from typing_extensions import override

from aes_rl.errors import UserError
from aes_rl.gradients.taps import CONVOLUTIONS
from aes_rl.integrations.hooked import AbstractHookedAttachment, Arguments, is_stored, rows_of, without_steps
from aes_rl.integrations.selection import Array as Slots
from aes_rl.integrations.selection import Pending, Selection
from aes_rl.integrations.stable_baselines3_buffers import SelectiveReplayBuffer, selective
from aes_rl.integrations.watched import Watched
from aes_rl.types import Signal

# isort: split
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples, TrainFreq, TrainFrequencyUnit


class AbstractModelAttachment(AbstractHookedAttachment):
    """A model of Stable-Baselines3 with weighted losses."""

    def __init__(self, model: OffPolicyAlgorithm, measure_every: int | None):
        self._host = model
        self._dump: _Dump | None = None
        super().__init__(model, measure_every)

    @abstractmethod
    def watch_networks(self) -> None:
        """Watch every network that the model trains."""

    @abstractmethod
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """All optimizers of the model. Every update steps the last one."""

    @override
    def install(self) -> None:
        self._undo.append(self._leave_logger)  # what is undone last
        self.watch_networks()
        # `learn` makes a logger, so it is known when the first update is made.
        self._undo.append(self.optimizers()[-1].register_step_post_hook(self._follow_logger).remove)

    @override
    def bind(self, selection: Selection) -> None:
        _check_options(self._host, selective(self._host.replay_buffer))
        super().bind(selection)
        selection.infer_length = partial(updates_of_run, self._host)
        selection.session = lambda: self._host.start_time

    @override
    def selection_of_buffer(self) -> Selection:
        return selective(self._host.replay_buffer).selection  # the model may have loaded another buffer

    @override
    def device(self) -> torch.device:
        return self._host.device

    @override
    def differentiate(self, slots: Slots) -> None:
        model, buffer = self._host, selective(self._host.replay_buffer)
        fixed, twin = copy.copy(buffer), copy.copy(model)
        vars(fixed)["sample"] = lambda _, env=None: buffer.rows_at(slots, env)
        twin.replay_buffer, twin.tau = fixed, 0.0
        twin._n_updates = getattr(model, "policy_delay", 1) - 1  # TD3 trains its actor in this update
        twin.set_logger(Logger(None, []))
        was_training = model.policy.training
        with without_steps(self.optimizers()):
            twin.train(gradient_steps=1, batch_size=len(slots))
        model.policy.set_training_mode(was_training)

    def watch_errors(
        self,
        network: nn.Module,
        target: nn.Module,
        add: Callable[[Pending, ReplayBufferSamples, Tensor, Tensor], None],
        counts: Callable[[Arguments], bool] = lambda _: True,
    ) -> None:
        """Call `add` after the network's pass over a batch, with its output and the last one of the target network.

        With `counts`, only after passes whose arguments it accepts.
        """
        last: list[Tensor] = []

        def after_target(module: nn.Module, arguments: Arguments, output: Tensor) -> None:
            del module, arguments
            last[:] = [output.detach()]

        def after_estimate(module: nn.Module, arguments: Arguments, output: Tensor) -> None:
            del module
            pending = self.pending(len(output), after_estimate) if counts(arguments) else None
            if pending is not None and pending.batch is not None and last:
                add(pending, pending.batch, output.detach(), last.pop())

        hooks = target.register_forward_hook(after_target), network.register_forward_hook(after_estimate)
        self._undo += [hook.remove for hook in hooks]

    def _follow_logger(self, *arguments: object) -> None:
        """Add the metrics to everything that the model's current logger writes."""
        del arguments
        logger = self._host.logger
        if self._dump is None or self._dump.logger is not logger:
            self._leave_logger()
            dump = logger.dump
            self._dump = dump if isinstance(dump, _Dump) else _Dump(logger)
            self._dump.attachments.append(self)
        self._dump.last = self

    def _leave_logger(self) -> None:
        if self._dump is not None:
            self._dump.leave(self)
            self._dump = None


class _Dump:
    """The `dump` of a logger, with the metrics of the attachment that made the last update. Models may share one."""

    def __init__(self, logger: Logger):
        self.logger = logger
        self.attachments: list[AbstractModelAttachment] = []
        self.last: AbstractModelAttachment | None = None
        self._own, self._original = vars(logger).get("dump"), logger.dump
        vars(logger)["dump"] = self

    def __call__(self, step: int = 0) -> None:
        if self.logger.output_formats and self.last is not None:
            for name, value in self.last.metrics().items():
                self.logger.record(f"selection/{name}", value)
        self._original(step)

    def leave(self, attachment: AbstractModelAttachment) -> None:
        """Show nothing more of an attachment. After the last one, the logger is as before."""
        self.attachments.remove(attachment)
        self.last = None if self.last is attachment else self.last
        if not self.attachments and vars(self.logger).get("dump") is self:
            del vars(self.logger)["dump"]
            if self._own is not None:
                vars(self.logger)["dump"] = self._own


class AbstractEntropyAttachment(AbstractModelAttachment):
    """An actor–critic model with a stochastic actor and a temperature."""

    def __init__(self, model: SAC, measure_every: int | None):
        self._model = model
        self.log_probability: dict[str, Tensor] = {}
        """Log probabilities of the actor's last actions: "current" in its loss, "next" in the critics' target."""
        super().__init__(model, measure_every)

    @override
    def optimizers(self) -> list[torch.optim.Optimizer]:
        model = self._model
        own = [] if model.ent_coef_optimizer is None else [model.ent_coef_optimizer]
        return [*own, model.actor.optimizer, model.critic.optimizer]

    def watch_actor(self) -> None:
        """Watch the actor, and weight the temperature loss, which uses its log probabilities."""
        model, actor = self._model, self._model.actor
        watched = Watched("actor", actor, [], self.needs, skips=CONVOLUTIONS)
        original = actor.action_log_prob

        def action_log_prob(observation: Tensor) -> tuple[Tensor, Tensor]:
            pending = self.pending(rows_of(observation), watched)
            if pending is None:
                action, log = original(observation)
                self.log_probability["next"] = log.detach().reshape(-1)
                return action, log
            self.open(watched, pending)
            try:
                action, log = original(observation)
                self.log_probability["current"] = log.detach().reshape(-1)
                return watched.weighted(action), watched.weighted(log)
            finally:
                watched.close()

        def weigh(*arguments: object) -> None:
            del arguments
            pending = self.current()
            if pending is not None and "current" in self.log_probability:
                surplus = self.log_probability.pop("current") + float(model.target_entropy)
                assert model.log_ent_coef is not None
                model.log_ent_coef.grad = -(pending.weights * surplus).mean().reshape(1)

        vars(actor)["action_log_prob"] = action_log_prob
        self._undo += [watched.remove, partial(vars(actor).pop, "action_log_prob")]
        if model.ent_coef_optimizer is not None:
            self._undo.append(model.ent_coef_optimizer.register_step_pre_hook(weigh).remove)


class SACAttachment(AbstractEntropyAttachment):
    """SAC with weighted losses."""

    @override
    def watch_networks(self) -> None:
        # The loss per critic is ½δ².
        critic = self._model.critic
        watched = Watched("critic", critic, [critic], self.needs, error_factor=1.0, skips=CONVOLUTIONS)
        self.watch(critic, watched, is_stored)
        self.watch_actor()


class TD3Attachment(AbstractModelAttachment):
    """TD3 or DDPG with weighted losses."""

    def __init__(self, model: TD3, measure_every: int | None):
        self._model = model
        super().__init__(model, measure_every)

    @override
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [self._model.actor.optimizer, self._model.critic.optimizer]

    @override
    def watch_networks(self) -> None:
        # The loss per critic is δ².
        critic, actor = self._model.critic, self._model.actor
        watched = Watched("critic", critic, [critic], self.needs, error_factor=0.5, skips=CONVOLUTIONS)
        self.watch(critic, watched, is_stored)
        self.watch(actor, Watched("actor", actor, [actor], self.needs, skips=CONVOLUTIONS), self._trains_actor)

    def _trains_actor(self, arguments: Arguments) -> bool:
        del arguments
        return self._measured is not None or self._model._n_updates % self._model.policy_delay == 0


class DQNAttachment(AbstractModelAttachment):
    """DQN with a weighted loss. Its one network is reported as the critic.

    The library's gradient clip comes after the backward pass, so it acts on the weighted gradient.
    """

    networks: ClassVar = ("critic",)

    def __init__(self, model: DQN, measure_every: int | None, clips_errors: bool):
        self._model = model
        self._clips_errors = clips_errors
        super().__init__(model, measure_every)

    @override
    def bind(self, selection: Selection) -> None:
        smallest = getattr(selection.config, "smallest_error", 0.0)
        if self._clips_errors and smallest >= 1 and Signal.TD_ERROR in selection.needs:
            raise UserError(
                f"smallest_error is {smallest:g}, and the errors that DQN gives are clipped to [−1, 1], so all slots "
                "would have the same probability; use attach(model, clips_errors=False)"
            )
        super().bind(selection)

    @override
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [self._model.policy.optimizer]

    @override
    def watch_networks(self) -> None:
        network, target = self._model.q_net, self._model.q_net_target
        # The gradient of the Huber loss gives the clipped error.
        factor = 1.0 if self._clips_errors else 0.0
        watched = Watched(
            "critic",
            network,
            [network],
            self.needs,
            error_factor=factor,
            skips=CONVOLUTIONS,
            has_squared_loss=False,
        )
        self.watch(network, watched)
        self.watch_errors(network, target, self._add_errors)

    def _add_errors(self, pending: Pending, batch: ReplayBufferSamples, values: Tensor, following: Tensor) -> None:
        """Remember how to compute the errors of this batch; they are computed only if they are used."""
        errors = partial(_errors, values, following, batch, self._model.gamma)
        pending.sources.append(partial(self._report_errors, errors))

    def _report_errors(self, errors: Callable[[], Float[Tensor, "B"]], pending: Pending) -> None:
        pending.critic_terms.append(lambda: _huber(errors()))
        if Signal.TD_ERROR in pending.needs and not self._clips_errors:
            pending.td_errors.append(errors().abs())


def _errors(
    values: Float[Tensor, "B actions"], following: Float[Tensor, "B actions"], batch: ReplayBufferSamples, gamma: float
) -> Float[Tensor, "B"]:
    """δ = r + γ (1 − terminated) max_a Q'(s', a) − Q(s, a), not clipped."""
    discounts = gamma if batch.discounts is None else batch.discounts
    target = batch.rewards + (1 - batch.dones) * discounts * following.amax(dim=1, keepdim=True)
    return (target - values.gather(1, batch.actions.long())).squeeze(1)


def _huber(errors: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
    """½δ² for |δ| < 1, else |δ| − ½: the loss of each sample in DQN."""
    return smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")


def _check_options(model: OffPolicyAlgorithm, buffer: SelectiveReplayBuffer) -> None:
    """Reject options of the model that the buffer does not follow, and state-dependent exploration."""
    if model.n_steps not in (1, buffer.n_steps):
        raise UserError(
            f"n_steps is {model.n_steps} in the model and {buffer.n_steps} in its replay buffer; use "
            f"replay_buffer_kwargs={{'n_steps': {model.n_steps}, 'gamma': {model.gamma}}}"
        )
    if buffer.n_steps > 1 and buffer.gamma != model.gamma:
        raise UserError(
            f"gamma is {model.gamma} in the model and {buffer.gamma} in its replay buffer; use "
            f"replay_buffer_kwargs={{'n_steps': {buffer.n_steps}, 'gamma': {model.gamma}}}"
        )
    if getattr(model, "use_sde", False):
        raise UserError("use_sde is on, and state-dependent exploration is not supported; use use_sde=False")


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
