"""A sampler with the interface that another library's replay buffer needs: placing, drawing and feedback."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl import checks
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Draw, Signal, Signals, as_tensor

Array = NDArray[np.int64]
NETWORKS = ("actor", "critic")
"""Network names in the feedback of every attachment."""
_LONGEST_QUEUE = 64
"""Maximum number of batches without feedback."""


class Pending:
    """A batch that was drawn and has no feedback yet."""

    def __init__(self, number: int, draw: Draw, weights: Float[Tensor, "B"]):
        self.number = number
        """Draws are numbered from 1."""
        self.draw = draw
        self.weights = weights
        self.td_errors: list[Float[Tensor, "B"]] = []
        """Absolute TD errors, one tensor per critic."""
        self.gradient_norm: dict[str, Float[Tensor, "B"]] = {}
        self.sources: list[Callable[[Pending], None]] = []
        """Callbacks that add norms and TD errors to the batch before it is reported to the sampler."""


class Selection:
    """Chooses slots to write and slots to draw. A drawn batch waits in the queue until its feedback is given.

    Most hosts train on a batch before they draw the next one: all feedback is given before the next draw or insertion.
    A host that draws ahead gives the feedback on each batch itself, by `report`.
    """

    def __init__(
        self, config: Any, capacity: int, seed: int, total_updates: int | None = None, draws_ahead: bool = False
    ):
        self.config, self.capacity, self.seed, self.total_updates = config, capacity, seed, total_updates
        self.draws_ahead = draws_ahead
        self.sampler = Sampler([config], capacity=capacity, total_updates=total_updates, backend="numba")
        if Signal.EVERY_GRADIENT_NORM in self.sampler.needs:
            raise ValueError(
                f"{type(config).__name__} needs the gradient norms of all slots, and a training step gives only those "
                "of its batch; use Adaptive(), which learns from its draws"
            )
        self._networks = set(getattr(config, "networks", None) or ())
        if not self._networks <= set(NETWORKS):
            raise ValueError(f"networks is {config.networks}; the networks are named {' and '.join(NETWORKS)}")
        self._streams = Streams([seed], self.sampler.backend)
        self.updates = 0
        """Batches drawn so far."""
        self.queue: dict[int, Pending] = {}
        """Batches without feedback by the number of their draw, oldest first."""
        self._lock = threading.RLock()  # a host may prefetch batches in another thread
        self._reports = 0
        self._first_number = 0
        # For hosts that choose the place of each transition: the slot of each place and its inverse; −1 means none yet.
        self._slot_of, self._place_of = (np.full(capacity, -1, np.int64) for _ in range(2))

    def __len__(self) -> int:
        return len(self.sampler)

    @property
    def needs(self) -> Signal:
        """Signals that the sampler uses."""
        return self.sampler.needs

    @property
    def keeps_order(self) -> bool:
        """Whether a full buffer overwrites its oldest transition first."""
        return all(rule.overwrite == "fifo" for rule in self.sampler.rules)

    def place(self, count: int) -> Array:
        """Distinct slots for `count` new transitions."""
        self.settle()
        with self._lock:
            clock = self.sampler.distribution.clock
            slots = self.sampler.place(self._streams.uniform(Stream.PLACE, clock, 2 * count))
        first: Array = as_tensor(slots)[0].numpy()
        return first

    def follow(self, places: Array) -> None:
        """Assign slots to the places that the host has written."""
        self.settle()
        if len(places) > 1:  # a host that copies many rows at once may write one place several times
            places = np.array(list(dict.fromkeys(places.tolist())))
        slots = self._slot_of[places]
        is_known = slots >= 0
        if is_known.any():
            self.sampler.renew(slots[is_known][np.newaxis])
        for place in places[~is_known]:
            slot = self.place(1)[0]
            self._slot_of[place], self._place_of[slot] = slot, place

    def draw_places(self, batch_size: int) -> Array:
        """Draw a batch and return the host's places of its transitions."""
        places: Array = self._place_of[slots_of(self.draw(batch_size))]
        return places

    @property
    def pending(self) -> Pending | None:
        """The last batch drawn, if it has no feedback yet."""
        return next(reversed(self.queue.values()), None)

    def draw(self, batch_size: int) -> Pending:
        """Draw a batch: its slots and their importance weights."""
        checks.count("batch_size", batch_size)
        self.settle()
        with self._lock:
            if len(self.queue) >= _LONGEST_QUEUE:
                self._drop_oldest()
            uniforms = self._streams.uniform(Stream.DRAW, self._streams.counter(self.updates), batch_size)
            draw = self.sampler.draw(uniforms)
            self.updates += 1
            pending = Pending(self._first_number + self.updates, draw, self.sampler.weights(draw)[0])
            self.queue[pending.number] = pending
            if self.draws_ahead and not self.needs:
                self.report(pending)
            return pending

    def settle(self) -> None:
        """Give the sampler the feedback on the last batch, unless the host draws ahead."""
        if not self.draws_ahead:
            for pending in list(self.queue.values()):
                self.report(pending)

    def report(self, pending: Pending) -> None:
        """Give the sampler the feedback on a batch, if the batch is still in the queue."""
        with self._lock:
            if self.queue.get(pending.number) is not pending:
                return
            del self.queue[pending.number]
            for source in pending.sources:
                source(pending)
            missing = Signal.GRADIENT_NORM in self.needs and not pending.gradient_norm
            missing |= Signal.TD_ERROR in self.needs and not pending.td_errors
            if missing:
                raise RuntimeError(
                    f"{type(self.config).__name__} got no feedback on the last batch: attach it to the model before "
                    "training, or discard() a batch that was not drawn for training"
                )
            # Without the norm of a chosen network, a delayed actor was not trained: an update without feedback.
            if self._networks <= set(pending.gradient_norm):
                errors = pending.td_errors
                error = torch.stack(errors).mean(dim=0).detach().cpu().unsqueeze(0) if errors else None
                norms = {name: norm.detach().cpu().unsqueeze(0) for name, norm in pending.gradient_norm.items()}
                self.sampler.feedback(pending.draw, Signals(error, norms))
            self._reports += 1
            self.sampler.advance(self._reports)

    def discard(self, number: int | None = None) -> None:
        """Drop the batch with this number, or all batches without feedback. They do not count as updates."""
        with self._lock:
            for dropped in list(self.queue) if number is None else [number]:
                self.queue.pop(dropped, None)

    def _drop_oldest(self) -> None:
        """Drop the oldest batch. It was not drawn for training, or the sampler is not attached."""
        if self._reports == 0:
            raise RuntimeError(
                f"{len(self.queue)} batches were drawn and {type(self.config).__name__} got feedback on none: "
                "attach it to the loss before training"
            )
        del self.queue[next(iter(self.queue))]

    def emptied(self) -> "Selection":
        """A new selection for the same buffer, now empty."""
        empty = Selection(self.config, self.capacity, self.seed, self.total_updates, self.draws_ahead)
        # The host may still hold earlier batches, so their numbers are not used again.
        empty._first_number = self._first_number + self.updates
        return empty

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of the state."""
        self.settle()
        own = {f"sampler.{name}": value.clone() for name, value in self.sampler.state_dict().items()}
        places = {
            "slot_of": torch.from_numpy(self._slot_of.copy()),
            "place_of": torch.from_numpy(self._place_of.copy()),
        }
        numbers = {"updates": self.updates, "reports": self._reports, "seed": self.seed}
        return own | places | {name: torch.tensor(number) for name, number in numbers.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state. The next draws are the ones that the saved selection would have made."""
        if int(state["seed"]) != self.seed:
            raise ValueError(f"the state was saved with seed {int(state['seed'])}, not {self.seed}")
        prefix = "sampler."
        self.sampler.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        self.updates, self._reports = int(state["updates"]), int(state["reports"])
        self.queue.clear()
        self._slot_of[:], self._place_of[:] = state["slot_of"].numpy(), state["place_of"].numpy()

    def __getstate__(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("config", "capacity", "seed", "total_updates", "draws_ahead")}
        return {"options": options, "state": {name: value.numpy() for name, value in self.state_dict().items()}}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        Selection.__init__(self, **saved["options"])
        self.load_state_dict({name: torch.from_numpy(np.asarray(value)) for name, value in saved["state"].items()})


def slots_of(pending: Pending) -> Array:
    """The drawn slots as a NumPy array."""
    slots: Array = as_tensor(pending.draw.slots_view)[0].numpy()
    return slots
