"""Attachments to QR-DQN and TQC of sb3-contrib, whose critics estimate quantiles of the return.

The TD error that a sampler gets is that of the mean: the mean of the target's quantiles minus the mean of the estimated
ones, of each critic.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import huber_loss
from typing_extensions import override

from aes_rl.gradients.taps import CONVOLUTIONS
from aes_rl.integrations.hooked import is_stored
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Pending
from aes_rl.integrations.stable_baselines3_models import AbstractEntropyAttachment, AbstractModelAttachment
from aes_rl.integrations.watched import Watched
from aes_rl.types import Signal

require("sb3_contrib", "2.9", "3", "sb3-contrib")
from sb3_contrib import QRDQN, TQC, CrossQ  # noqa: E402
from stable_baselines3 import SAC  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

__all__ = ["QRDQN", "TQC", "CrossQ", "QRDQNAttachment", "TQCAttachment"]

Quantiles = tuple[Float[Tensor, "B critics N"], Float[Tensor, "B K"]]
"""The estimated quantiles and those of the target."""


class QRDQNAttachment(AbstractModelAttachment):
    """QR-DQN with a weighted loss. Its one network is reported as the critic."""

    networks: ClassVar = ("critic",)

    def __init__(self, model: QRDQN, measure_every: int | None):
        self._model = model
        super().__init__(model, measure_every)

    @override
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [self._model.policy.optimizer]

    @override
    def watch_networks(self) -> None:
        network, target = self._model.quantile_net, self._model.quantile_net_target
        self.watch(network, Watched("critic", network, [network], self.needs, skips=CONVOLUTIONS))
        self.watch_errors(network, target, self._add_errors)

    def _add_errors(self, pending: Pending, batch: ReplayBufferSamples, values: Tensor, following: Tensor) -> None:
        compute = partial(_of_chosen_actions, values, following, batch, self._model.gamma)
        # The loss sums over the estimated quantiles.
        pending.sources.append(partial(_report, compute, float(values.shape[1])))


class TQCAttachment(AbstractEntropyAttachment):
    """TQC with weighted losses."""

    def __init__(self, model: TQC, measure_every: int | None):
        self._tqc = model
        self._temperature = torch.zeros(())
        super().__init__(cast(SAC, model), measure_every)  # the same actor and temperature

    @override
    def watch_networks(self) -> None:
        critic, target = self._model.critic, self._model.critic_target
        self.watch(critic, Watched("critic", critic, [critic], self.needs, skips=CONVOLUTIONS), is_stored)
        self.watch_actor()
        self.watch_errors(critic, target, self._add_errors, is_stored)

    @override
    def open(self, watched: Watched, pending: Pending) -> None:
        model = self._model
        if watched.name == "actor":  # the step of the temperature comes before the target, which uses the old one
            log = model.log_ent_coef
            self._temperature = model.ent_coef_tensor if log is None else log.detach().exp()
        super().open(watched, pending)

    def _add_errors(self, pending: Pending, batch: ReplayBufferSamples, values: Tensor, following: Tensor) -> None:
        dropped = self._tqc.top_quantiles_to_drop_per_net * following.shape[1]
        entropy = self._temperature * self.log_probability["next"].unsqueeze(1)
        compute = partial(_with_truncated_target, values, following, dropped, entropy, batch, self._model.gamma)
        # The loss is a mean over critics, and the critics' terms are added.
        pending.sources.append(partial(_report, compute, 1 / values.shape[1]))


def _of_chosen_actions(
    values: Float[Tensor, "B N actions"],
    following: Float[Tensor, "B N actions"],
    batch: ReplayBufferSamples,
    gamma: float,
) -> Quantiles:
    """QR-DQN's quantiles of the stored action, and its target of the next action with the largest mean."""
    best = following.mean(dim=1).argmax(dim=1)
    at = torch.arange(len(values), device=values.device)
    return values[at, :, batch.actions.long().squeeze(1)].unsqueeze(1), _target(following[at, :, best], batch, gamma)


def _with_truncated_target(
    values: Float[Tensor, "B critics N"],
    following: Float[Tensor, "B critics N"],
    dropped: int,
    entropy: Float[Tensor, "B 1"],
    batch: ReplayBufferSamples,
    gamma: float,
) -> Quantiles:
    """TQC's quantiles, and its target without the largest quantiles of all critics together."""
    together = following.flatten(start_dim=1).sort(dim=1).values
    return values, _target(together[:, : together.shape[1] - dropped] - entropy, batch, gamma)


def _target(following: Float[Tensor, "B K"], batch: ReplayBufferSamples, gamma: float) -> Float[Tensor, "B K"]:
    discounts = gamma if batch.discounts is None else batch.discounts
    return batch.rewards + (1 - batch.dones) * discounts * following


def _report(compute: Callable[[], Quantiles], factor: float, pending: Pending) -> None:
    pending.critic_terms.append(lambda: factor * _quantile_loss(*compute()).sum(dim=1))
    if Signal.TD_ERROR in pending.needs:
        values, target = compute()
        errors = (target.mean(dim=1, keepdim=True) - values.mean(dim=2)).abs()
        pending.td_errors += list(errors.unbind(dim=1))


def _quantile_loss(values: Float[Tensor, "B critics N"], target: Float[Tensor, "B K"]) -> Float[Tensor, "B critics"]:
    """|τ − 1(δ < 0)| · huber(δ), averaged over all pairs of an estimated quantile and one of the target."""
    count = values.shape[2]
    shares = ((torch.arange(count, device=values.device) + 0.5) / count).unsqueeze(1)
    difference = target[:, None, None, :] - values.unsqueeze(-1)
    losses: Tensor = huber_loss(difference, torch.zeros_like(difference), reduction="none")
    return ((shares - (difference < 0).float()).abs() * losses).mean(dim=(2, 3))
