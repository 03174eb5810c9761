"""Samplers for TorchRL: a Sampler and a Writer for its replay buffers, and `attach` for its losses.

    sampler = SelectiveSampler(Predictive(), capacity=100_000)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100_000), sampler=sampler, writer=SelectiveWriter(sampler), batch_size=256
    )
    loss = SACLoss(actor, qvalue, reduction="none", deactivate_vmap=True)
    attach(loss, sampler, logger)
    …
    losses = loss(buffer.sample())
    (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).mean().backward()

TorchRL's losses multiply every term by the batch's `priority_weight`. With `reduction="mean"` they divide by the sum of
the weights, which is biased. Use `reduction="none"` and take the mean yourself.
"""

import threading
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from aes_rl import checks
from aes_rl.errors import UserError
from aes_rl.gradients import Taps, squared_norms
from aes_rl.integrations.attachment import AbstractAttachment
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Array, Pending, Selection
from aes_rl.types import Signal

require("torchrl", "0.14", "0.15", "torchrl")
from tensordict import TensorDictBase  # type: ignore[import-untyped]  # noqa: E402
from torchrl.data import ReplayBuffer  # noqa: E402
from torchrl.objectives import DDPGLoss, LossModule, SACLoss, TD3Loss  # noqa: E402
from torchrl.record.loggers import Logger  # noqa: E402

from aes_rl.integrations.torchrl_buffers import SelectiveSampler, SelectiveWriter  # noqa: E402

__all__ = ["Attachment", "SelectiveSampler", "SelectiveWriter", "attach"]

_SUPPORTED = {SACLoss: "qvalue", TD3Loss: "qvalue", DDPGLoss: "value"}
"""Supported losses, with the name of their critics: the network is `…_network`, its loss `loss_…`."""


class Attachment(AbstractAttachment):
    """Collects per-sample norms and TD errors of a loss, and reports them at the next draw or loss call."""

    def __init__(
        self,
        loss: LossModule,
        sampler: SelectiveSampler,
        logger: Logger | None,
        log_every: int,
        measure_every: int | None,
    ):
        if sampler.listener is not None:
            raise ValueError("the sampler is already attached; detach() the old attachment first, or keep it")
        super().__init__(loss, measure_every)
        self._loss, self._sampler, self._logger = loss, sampler, logger
        self._log_every, self._last_log = log_every, 0
        self._critic = _SUPPORTED[type(loss)]
        self._thread = threading.get_ident()
        """Thread in which the loss was last computed."""
        self._to_report: tuple[Pending, dict[str, Tensor]] | None = None
        self._taps: dict[str, Taps] = {}
        if Signal.GRADIENT_NORM in self.needs:
            networks = {"actor": loss.actor_network, "critic": getattr(loss, f"{self._critic}_network")}
            self._taps = {name: Taps(network, is_functional=True) for name, network in networks.items()}
        self._handles = [loss.register_forward_pre_hook(self._before), loss.register_forward_hook(self._after)]
        sampler.listener = self._report_here

    @override
    def selection_of_buffer(self) -> Selection:
        return self._sampler.selection

    @override
    def device(self) -> torch.device:
        device: torch.device = next(self._loss.parameters()).device
        return device

    @override
    def report(self) -> None:
        if self._to_report is None:
            return
        pending, taps = self._to_report
        if not taps or any(tap.grad is not None for tap in taps.values()):
            self._to_report = None
            self.selection().report(pending)

    def _report_here(self) -> None:
        """Report, but not from a prefetching thread: the backward pass may be running."""
        if self._thread == threading.get_ident():
            self.report()

    @override
    def detach(self) -> None:
        self.report()
        self.release()
        self._sampler.listener = None
        for handle in self._handles:
            handle.remove()
        for taps in self._taps.values():
            taps.remove()

    @override
    def differentiate(self, slots: Array) -> None:
        assert self._sampler.storage is not None
        buffers = [one for one in self._sampler.storage._attached_entities if isinstance(one, ReplayBuffer)]
        batch = buffers[0][torch.from_numpy(slots)].to(self.device())  # with the buffer's transforms
        batch.set(self._loss.tensor_keys.priority_weight, torch.ones(len(slots), device=self.device()))
        losses = self._loss(batch)
        total = losses["loss_actor"] + losses[f"loss_{self._critic}"]
        parameters = [parameter for parameter in self._loss.parameters() if parameter.requires_grad]
        torch.autograd.grad(total.mean(), parameters, allow_unused=True)

    def _before(self, loss: LossModule, arguments: tuple[TensorDictBase]) -> None:
        batch, pending = arguments[0], self._measured
        if pending is None:
            self._thread = threading.get_ident()
            self.report()
            self._log()
            number = int(batch.get("draw")[0]) if "draw" in batch.keys() else -1  # noqa: SIM118
            pending = self.selection().queue.get(number)
            if pending is None:
                return
            if loss.tensor_keys.priority_weight not in batch.keys():  # noqa: SIM118
                weight = loss.tensor_keys.priority_weight
                raise ValueError(f"the batch has no {weight!r}; the loss would not be weighted")
            weights = batch.get(loss.tensor_keys.priority_weight).reshape(-1).cpu()
            if weights.shape != pending.weights.shape or not torch.equal(weights, pending.weights.to(weights).cpu()):
                raise ValueError(
                    "the batch was reordered, cut or reweighted after it was drawn, so its feedback would go to other "
                    "slots; give the loss the batch as the buffer returned it"
                )
            self._to_report = (pending, {})
        if Signal.GRADIENT_NORM in pending.needs:
            leaves = {name: taps.tap((len(pending.weights),)) for name, taps in self._taps.items()}
            for name, taps in self._taps.items():
                taps.connect(leaves[name])
            pending.sources = [partial(_add_norms, leaves)]
            if self._measured is None:
                self._to_report = (pending, leaves)

    def _after(self, loss: LossModule, arguments: tuple[TensorDictBase], output: TensorDictBase) -> None:
        for taps in self._taps.values():
            taps.disconnect()
        if self._to_report is None or self._measured is not None:
            return
        pending = self._to_report[0]
        weighted: Tensor = output.get(f"loss_{self._critic}").detach()
        pending.critic_terms = [lambda: weighted.cpu() / pending.weights.cpu()]
        if Signal.TD_ERROR in pending.needs:
            error = arguments[0].get(loss.tensor_keys.priority).detach().abs().reshape(-1)
            # SACLoss stores the TD error, the other two its square.
            pending.td_errors = [error if isinstance(loss, SACLoss) else error.sqrt()]

    def _log(self) -> None:
        updates = self.selection().updates
        if self._logger is not None and updates >= self._last_log + self._log_every:
            self._last_log = updates
            found = {f"selection/{name}": value for name, value in self.metrics().items()}
            self._logger.log_metrics(found, step=updates)


def attach(
    loss: LossModule,
    sampler: SelectiveSampler,
    logger: Logger | None = None,
    log_every: int = 1000,
    measure_every: int | None = None,
) -> Attachment:
    """Give the sampler the norms and TD errors of every batch that the loss is computed on.

    Args:
        loss: The loss module.
        sampler: The sampler of the replay buffer.
        logger: Logger that gets what `Attachment.metrics` returns, with the prefix "selection/" and the number of
            updates as step.
        log_every: Number of updates between two logs.
        measure_every: Number of updates after which the next log also measures the captured fraction; None for never.
    """
    if type(loss) not in _SUPPORTED:
        names = ", ".join(kind.__name__ for kind in _SUPPORTED)
        raise TypeError(f"{type(loss).__name__} cannot be attached; supported are {names}")
    if loss.reduction != "none":
        raise UserError(
            f"reduction is {loss.reduction!r}, which divides weighted losses by the sum of their weights; create the "
            'loss with reduction="none" and take the mean yourself'
        )
    if loss.use_prioritized_weights is False:
        raise UserError("use_prioritized_weights is off, so the loss would not be weighted; leave it at its default")
    if isinstance(loss, SACLoss) and loss._version == 1:
        raise UserError("SACLoss with a value network trains each critic on part of the batch; leave value_network out")
    if not getattr(loss, "deactivate_vmap", True):
        raise UserError(
            "the critics run under vmap, where per-sample norms cannot be computed; use deactivate_vmap=True"
        )
    checks.count("log_every", log_every)
    return Attachment(loss, sampler, logger, log_every, measure_every)


def _add_norms(taps: dict[str, Tensor], pending: Pending) -> None:
    for name, tap in taps.items():
        if tap.grad is not None:
            pending.gradient_norm[name] = squared_norms(tap.grad, pending.weights.to(tap.device))
