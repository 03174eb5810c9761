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
_MOST_AHEAD = 64
"""Maximum number of batches drawn ahead of their feedback."""


class Pending:
    """A batch that was drawn and has no feedback yet."""

    def __init__(self, draw: Draw, weights: Float[Tensor, "B"]):
        self.draw = draw
        self.weights = weights
        self.td_errors: list[Float[Tensor, "B"]] = []
        """Absolute TD errors, one tensor per critic."""
        self.gradient_norm: dict[str, Float[Tensor, "B"]] = {}
        self.sources: list[Callable[[Pending], None]] = []
        """Callbacks that add norms and TD errors to the batch before it is reported to the sampler."""


class Selection:
    """Chooses slots to write and slots to draw. Feedback on a batch is given before the next draw or insertion."""

    def __init__(self, config: Any, capacity: int, seed: int, total_updates: int | None = None):
        self.config, self.capacity, self.seed, self.total_updates = config, capacity, seed, total_updates
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
        self._lock = threading.RLock()  # a host may prefetch batches in another thread
        self._reports = 0
        self.pending: Pending | None = None
        self.ahead: dict[int, Pending] = {}
        """Batches drawn ahead of their feedback, by number."""
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

    def draw(self, batch_size: int) -> Pending:
        """Draw a batch: its slots and their importance weights."""
        checks.count("batch_size", batch_size)
        self.settle()
        draw = self.sampler.draw(self._streams.uniform(Stream.DRAW, self._streams.counter(self.updates), batch_size))
        self.updates += 1
        self.pending = Pending(draw, self.sampler.weights(draw)[0])
        return self.pending

    def draw_ahead(self, batch_size: int) -> tuple[int, Pending]:
        """Draw a batch that may get its feedback after later draws. Returns its number and the batch."""
        if len(self.ahead) >= _MOST_AHEAD:
            if self._reports == 0:
                raise RuntimeError(
                    f"{len(self.ahead)} batches were drawn and {type(self.config).__name__} got feedback on none: "
                    "attach it to the loss before training"
                )
            del self.ahead[min(self.ahead)]  # was not drawn for training
        with self._lock:
            self.draw(batch_size)
            pending, self.pending = self.pending, None
            assert pending is not None
            number = self._first_number + self.updates
            if self.needs:
                self.ahead[number] = pending
            return number, pending

    def hear(self, number: int, pending: Pending) -> None:
        """Give the sampler the feedback on a batch that was drawn ahead."""
        with self._lock:
            if self.ahead.get(number) is pending:
                del self.ahead[number]
                self._report(pending)

    def settle(self) -> None:
        """Give the sampler the feedback on the last batch."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            self._report(pending)

    def _report(self, pending: Pending) -> None:
        for report in pending.sources:
            report(pending)
        missing = Signal.GRADIENT_NORM in self.needs and not pending.gradient_norm
        missing |= Signal.TD_ERROR in self.needs and not pending.td_errors
        if missing:
            raise RuntimeError(
                f"{type(self.config).__name__} got no feedback on the last batch: attach it to the model before "
                "training, or discard() a batch that was not drawn for training"
            )
        if not self._networks <= set(pending.gradient_norm):
            self._advance()  # a delayed actor was not trained on this batch: an update without feedback
            return
        errors = pending.td_errors
        error = torch.stack(errors).mean(dim=0).detach().cpu().unsqueeze(0) if errors else None
        norms = {name: norm.detach().cpu().unsqueeze(0) for name, norm in pending.gradient_norm.items()}
        self.sampler.feedback(pending.draw, Signals(error, norms))
        self._advance()

    def _advance(self) -> None:
        self._reports += 1
        self.sampler.advance(self._reports)

    def discard(self) -> None:
        """Drop the last batch. It counts as an update without feedback."""
        if self.pending is not None:
            self.pending = None
            self._advance()

    def emptied(self) -> "Selection":
        """A new selection for the same buffer, now empty."""
        empty = Selection(self.config, self.capacity, self.seed, self.total_updates)
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
        self.ahead.clear()
        self._slot_of[:], self._place_of[:] = state["slot_of"].numpy(), state["place_of"].numpy()
        self.pending = None

    def __getstate__(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("config", "capacity", "seed", "total_updates")}
        return {"options": options, "state": {name: value.numpy() for name, value in self.state_dict().items()}}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        Selection.__init__(self, **saved["options"])
        self.load_state_dict({name: torch.from_numpy(np.asarray(value)) for name, value in saved["state"].items()})


def slots_of(pending: Pending) -> Array:
    """The drawn slots as a NumPy array."""
    slots: Array = as_tensor(pending.draw.slots_view)[0].numpy()
    return slots
