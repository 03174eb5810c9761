"""What connects a sampler to a learner of another library, and shows how the selection goes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl import checks
from aes_rl.errors import UserError
from aes_rl.integrations import metrics
from aes_rl.integrations.selection import NETWORKS, Array, Pending, Selection
from aes_rl.samplers.rule import named_networks
from aes_rl.types import Signal

_MEASURED_SLOTS = 1024
"""Size of the uniform sample of slots that the captured fraction is measured on."""
_NOISE_SAMPLES = 4
"""Number of noise samples that a slot's squared gradient norm is averaged over."""


class AbstractAttachment(ABC):
    """Gives a sampler the per-sample norms and TD errors of a learner. `detach` ends that."""

    networks: ClassVar[tuple[str, ...]] = NETWORKS
    """Names of the networks that the learner trains."""

    def __init__(self, learner: object, measure_every: int | None):
        if measure_every is not None:
            checks.count("measure_every", measure_every)
        self._learner_name = type(learner).__name__
        self._measure_every = measure_every
        self._last_measurement = 0
        self._captured: dict[str, float] = {}
        self._measured: Pending | None = None
        self._bound: Selection | None = None

    @abstractmethod
    def selection_of_buffer(self) -> Selection:
        """The selection of the learner's current buffer, which may be another one than at the last call."""

    def selection(self) -> Selection:
        """The selection of the learner's current buffer, checked and connected to the learner."""
        selection = self.selection_of_buffer()
        if selection is not self._bound:
            self.bind(selection)
            self._bound = selection
        return selection

    def bind(self, selection: Selection) -> None:
        """Connect the selection of a buffer that is new to the learner, or raise if it would learn nothing."""
        named = named_networks(selection.config)
        if not set(named) <= set(self.networks):
            trained = " and ".join(map(repr, self.networks))
            raise UserError(f"networks is {named}, and {self._learner_name} trains only {trained}; use networks=None")
        selection.trained = self.networks
        self._last_measurement, self._captured = 0, {}

    def release(self) -> None:
        """Leave the selection without an attachment."""
        if self._bound is not None:
            self._bound.trained = self._bound.session = None

    @abstractmethod
    def report(self) -> None:
        """Give the sampler the feedback of the last backward pass, if there was one."""

    @abstractmethod
    def detach(self) -> None:
        """Remove all hooks, after reporting the last batch."""

    @abstractmethod
    def device(self) -> torch.device:
        """Device of the learner's networks."""

    @abstractmethod
    def differentiate(self, slots: Array) -> None:
        """Compute the losses of these slots and their gradients, as the training step does, and change nothing else."""

    @property
    def needs(self) -> Signal:
        """Signals that the learner must be able to give: those of the sampler, and norms if they are measured."""
        needs = self.selection().needs
        return needs if self._measure_every is None else needs | Signal.GRADIENT_NORM

    def metrics(self) -> dict[str, float]:
        """How the selection goes; docs/integrations/index.md lists the names. Measures the captured fraction if due."""
        self.report()
        selection = self.selection()
        found = metrics.of_feedback(selection)
        if selection.last is not None:
            found |= metrics.of_batch(selection.last)
        if self._measure_every is not None and selection.updates >= self._last_measurement + self._measure_every:
            self._last_measurement = selection.updates
            self._captured = self._measure(selection)
            found |= self._captured
        return found

    def _measure(self, selection: Selection) -> dict[str, float]:
        """The captured fraction on a uniform sample of slots, at the current parameters."""
        generator = np.random.default_rng([selection.seed, selection.updates])
        live = len(selection)
        slots = np.sort(generator.choice(live, min(live, _MEASURED_SLOTS), replace=False))
        norms: dict[str, Float[Tensor, "m"]] = {}
        device = self.device()
        # The run's own random numbers stay as they are.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(generator.integers(2**31)))
            for _ in range(_NOISE_SAMPLES):
                weights = torch.ones(len(slots), device=device)
                with self._measuring(Pending(0, None, weights, Signal.GRADIENT_NORM)) as measured:
                    self.differentiate(slots)
                for source in measured.sources:
                    source(measured)
                for name, norm in measured.gradient_norm.items():
                    norms[name] = norms.get(name, 0) + norm.double().cpu() / _NOISE_SAMPLES
        probabilities = selection.sampler.probabilities()[0, torch.from_numpy(slots)].cpu()
        return metrics.captured(norms, probabilities * (live / len(slots)))

    @contextmanager
    def _measuring(self, measured: Pending) -> Iterator[Pending]:
        self._measured = measured
        try:
            yield measured
        finally:
            self._measured = None

    def __repr__(self) -> str:
        selection = self.selection()
        drawn = "1 batch" if selection.draws == 1 else f"{selection.draws:,} batches"
        parts = [
            f"{drawn} drawn, feedback on {selection.updates:,}",
            f"{len(selection):,} of {selection.capacity:,} slots filled",
        ]
        found = metrics.of_feedback(selection)
        if "never_reported" in found:
            parts.append(f"{found['never_reported']:.0%} of them never reported")
        if selection.last is not None:
            last = metrics.of_batch(selection.last)
            parts.append(f"weights {last['smallest_weight']:.3g} to {last['largest_weight']:.3g}")
            parts.append(f"effective sample size {last['effective_sample_size']:.0f} of {len(selection.last.weights)}")
        if self._captured:
            when = f"at update {self._last_measurement:,}"
            parts.append(f"captured fraction {self._captured['captured_fraction']:.2f} {when}")
        return f"<{selection.name} attached to {self._learner_name}: {', '.join(parts)}>"
