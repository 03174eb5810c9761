"""A sampler with the interface that another library's replay buffer needs: placing, drawing and feedback."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aes_rl import checks
from aes_rl.errors import UserError
from aes_rl.samplers.registry import resolve
from aes_rl.samplers.rule import (
    SamplerConfig,
    candidates_per_draw,
    config_of_actor,
    draws_per_network,
    named_networks,
    networks_of,
)
from aes_rl.samplers.sampler import Sampler
from aes_rl.streams import Stream, Streams
from aes_rl.types import Draw, Signal, Signals, as_tensor

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

Array = NDArray[np.int64]
NETWORKS = ("actor", "critic")
"""Network names in the feedback of every attachment."""
_MOST_WITHOUT_NETWORKS = 100
"""Updates in a row without the norms that the sampler learns from, after which an error is raised. A delayed actor is
trained in every second or third."""
_LONGEST_QUEUE = 64
"""Maximum number of batches without feedback."""


class Pending:
    """A batch that was drawn and has no feedback yet."""

    def __init__(self, number: int, draw: Draw | None, weights: Float[Tensor, "B"], needs: Signal):
        self.number = number
        """Draws are numbered from 1."""
        self.draw = draw
        """None for a batch that was not drawn: one whose gradients are only measured."""
        self.weights = weights
        self.needs = needs
        """Signals to collect."""
        self.batch: "ReplayBufferSamples | None" = None
        """The transitions that were read for the draw, where the host's loss is recomputed from them."""
        self.td_errors: list[Float[Tensor, "B"]] = []
        """Absolute TD errors, one tensor per critic."""
        self.gradient_norm: dict[str, Float[Tensor, "B"]] = {}
        self.critic_terms: list[Callable[[], Float[Tensor, "B"]]] = []
        """For each critic, a function that computes the unweighted loss of every sample."""
        self.sources: list[Callable[[Pending], None]] = []
        """Callbacks that add all of the above to the batch before it is reported to the sampler."""
        self.passes: set[object] = set()
        """Watchers that have seen their network's pass over the batch. Later passes are not those of the loss."""
        self.is_unfinished = False
        """Whether a network's pass over the batch was never differentiated. Known after the sources were called."""
        self.session: object = None
        """What the selection's `session` returned when the batch was drawn."""


class Options(TypedDict):
    """The arguments of a `Selection`."""

    config: SamplerConfig
    capacity: int
    seed: int
    total_updates: int | None
    draws_ahead: bool
    length_is_inferred: bool


class Saved(TypedDict):
    """A pickled `Selection`."""

    options: Options
    total_updates: NotRequired[int | None]
    """The inferred length of the run."""
    state: dict[str, NDArray[np.generic]]


class Selection:
    """Chooses slots to write and slots to draw. A drawn batch waits in the queue until its feedback is given.

    Most hosts train on a batch before they draw the next one: all feedback is given before the next draw or insertion.
    A host that draws ahead gives the feedback on each batch itself, by `report`.
    """

    def __init__(
        self,
        config: SamplerConfig | str,
        capacity: int,
        seed: int,
        total_updates: int | None = None,
        draws_ahead: bool = False,
        length_is_inferred: bool = False,
    ):
        """Create the sampler. With `length_is_inferred`, `infer_length` may give `total_updates` later."""
        self.config = resolve(config)
        self.capacity, self.seed, self.total_updates = capacity, seed, total_updates
        self._given_updates = total_updates
        self.draws_ahead, self.length_is_inferred = draws_ahead, length_is_inferred
        self.infer_length: Callable[[], int] | None = None
        """Called before the first insertion if the sampler needs `total_updates` and it was not given."""
        self.trained: tuple[str, ...] | None = None
        """Names of the networks that the attached learner trains; None if there is none."""
        self.session: Callable[[], object] | None = None
        """Returns a value that changes with every call of the host's `learn`."""
        self._needs_length = False
        try:
            self.sampler = self._new_sampler(total_updates)
        except UserError:
            if total_updates is not None or not length_is_inferred:
                raise
            self.sampler = self._new_sampler(1)  # raises again unless only the length of the run was missing
            self._needs_length = True
        if Signal.EVERY_GRADIENT_NORM in self.sampler.needs:
            raise UserError(
                f"{self.name} needs the gradient norms of all slots, and a training step gives only those of its "
                "batch; use Adaptive(), which learns from its draws"
            )
        if candidates_per_draw(self.config) > 1:
            raise UserError(
                f"{self.name} chooses among candidates by their TD errors, and this library gives those of its batch "
                "only; use Prioritized(weight_exponent_end=None)"
            )
        if config_of_actor(self.config) is not self.config:
            raise UserError(
                f"{self.name} needs a draw for the critics and one for the actor, and this library draws once per "
                "update; use Prioritized(weight_exponent_end=None)"
            )
        if draws_per_network(self.config):
            raise UserError(
                "networks is 'separate', which needs a draw for each loss, and this library draws once per update; "
                "give networks='balanced', with which all networks have equal influence on the one draw"
            )
        named = named_networks(self.config)
        if not set(named) <= set(NETWORKS):
            raise UserError(f"networks is {named}; the networks are named {' and '.join(NETWORKS)}")
        self._streams = Streams([seed], self.sampler.backend)
        self.draws = 0
        self.updates = 0
        self._updates_without_networks = 0
        """Batches whose feedback was given."""
        self.queue: dict[int, Pending] = {}
        """Batches without feedback by the number of their draw, oldest first."""
        self.last: Pending | None = None
        """The last batch whose feedback was given."""
        self.last_report = np.zeros(capacity, np.int32)
        """The last update that gave feedback on each slot since it was written; 0 if none did."""
        self._lock = threading.RLock()  # a host may prefetch batches in another thread
        self._first_number = 0
        # For hosts that choose the place of each transition: the slot of each place and its inverse; −1 means none yet.
        # Empty until `follow` is called.
        self._slot_of, self._place_of = np.empty(0, np.int64), np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.sampler)

    @property
    def name(self) -> str:
        """Name of the sampler's configuration."""
        return type(self.config).__name__

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
        if self._needs_length:
            self._set_length()
        with self._lock:
            clock = self.sampler.distribution.clock
            slots = self.sampler.place(self._streams.uniform(Stream.PLACE, clock, 2 * count))
            first: Array = as_tensor(slots)[0].numpy()
            self.last_report[first] = 0
        return first

    def follow(self, places: Array) -> None:
        """Assign slots to the places that the host has written."""
        self.settle()
        if len(places) > 1:  # a host that copies many rows at once may write one place several times
            places = np.array(list(dict.fromkeys(places.tolist())))
        if not len(self._slot_of):
            self._slot_of, self._place_of = (np.full(self.capacity, -1, np.int64) for _ in range(2))
        slots = self._slot_of[places]
        is_known = slots >= 0
        if is_known.any():
            self.sampler.renew(slots[is_known][np.newaxis])
            self.last_report[slots[is_known]] = 0
        for place in places[~is_known]:
            slot = self.place(1)[0]
            self._slot_of[place], self._place_of[slot] = slot, place

    def places_of(self, slots: Array) -> Array:
        """The host's places of slots."""
        places: Array = self._place_of[slots]
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
            uniforms = self._streams.uniform(Stream.DRAW, self._streams.counter(self.draws), batch_size)
            draw = self.sampler.draw(uniforms)
            self.draws += 1
            weights = self.sampler.weights(draw)[0]
            pending = Pending(self._first_number + self.draws, draw, weights, self.needs)
            pending.session = None if self.session is None else self.session()
            self.queue[pending.number] = pending
            if self.draws_ahead and not self.needs:
                self.report(pending)
            return pending

    def settle(self, drops_incomplete: bool = False) -> None:
        """Give the sampler the feedback on the last batch, unless the host draws ahead."""
        if not self.draws_ahead:
            for pending in list(self.queue.values()):
                self.report(pending, drops_incomplete)

    def report(self, pending: Pending, drops_incomplete: bool = False) -> None:
        """Give the sampler the feedback on a batch, if the batch is still in the queue.

        An update that was interrupted leaves a batch with part of its feedback. It is dropped in the host's next call
        of `learn`, and with `drops_incomplete`. It does not count as an update.
        """
        with self._lock:
            if self.queue.get(pending.number) is not pending:
                return
            del self.queue[pending.number]
            for source in pending.sources:
                source(pending)
            lacks_feedback = self._lacks_feedback(pending)
            if lacks_feedback or pending.is_unfinished:
                is_of_earlier_call = self.session is not None and pending.session != self.session()
                if drops_incomplete or is_of_earlier_call:
                    return
            if lacks_feedback:
                raise RuntimeError(
                    f"{self.name} got no feedback on the last batch: attach it to the model before training, or "
                    "discard() a batch that was not drawn for training"
                )
            self.updates += 1
            missing = self._required_networks() - set(pending.gradient_norm) if self.needs else set()
            self._updates_without_networks = self._updates_without_networks + 1 if missing else 0
            if self._updates_without_networks >= _MOST_WITHOUT_NETWORKS:
                raise RuntimeError(
                    f"{self.name} got no norms of {' and '.join(sorted(missing))} in {_MOST_WITHOUT_NETWORKS} updates "
                    "in a row, and learns nothing without them; compute all losses of a batch in one call"
                )
            if self.needs and not missing:
                self._feed(pending)
            self.sampler.advance(self.updates)
            self.last = pending

    def _lacks_feedback(self, pending: Pending) -> bool:
        """Whether a signal is missing, or the weights of a batch that no attachment weighted are not all 1."""
        if not self.needs:  # a host that draws ahead weights its losses itself
            return not self.draws_ahead and not pending.sources and bool((pending.weights != 1).any())
        has_no_norm = Signal.GRADIENT_NORM in self.needs and not pending.gradient_norm
        return has_no_norm or (Signal.TD_ERROR in self.needs and not pending.td_errors)

    def _required_networks(self) -> set[str]:
        """Networks without whose norm there is no feedback: a delayed actor is not trained in every update."""
        are_balanced = networks_of(self.config) == "balanced"
        return set(self.trained or ()) if are_balanced else set(named_networks(self.config))

    def _feed(self, pending: Pending) -> None:
        errors, draw = pending.td_errors, pending.draw
        assert draw is not None
        mean = errors[0] if len(errors) == 1 else torch.stack(errors).mean(dim=0) if errors else None
        error = None if mean is None else mean.detach().cpu().unsqueeze(0)
        norms = {name: norm.detach().cpu().unsqueeze(0) for name, norm in pending.gradient_norm.items()}
        self.sampler.feedback(draw, Signals(error, norms))
        slots, is_current = slots_of(pending), self.sampler.distribution.is_current(draw)
        self.last_report[slots if is_current is None else slots[is_current[0].numpy()]] = self.updates

    def discard(self, number: int | None = None) -> None:
        """Drop the batch with this number, or all batches without feedback. They do not count as updates."""
        with self._lock:
            for dropped in list(self.queue) if number is None else [number]:
                self.queue.pop(dropped, None)

    def _drop_oldest(self) -> None:
        """Drop the oldest batch: it was not drawn for training, or the sampler is not attached."""
        if self.updates == 0:
            raise RuntimeError(
                f"{len(self.queue)} batches were drawn and {self.name} got feedback on none: attach it to the loss "
                "before training"
            )
        del self.queue[next(iter(self.queue))]

    def _new_sampler(self, total_updates: int | None) -> Sampler:
        return Sampler([self.config], capacity=self.capacity, total_updates=total_updates, backend="numba")

    def _set_length(self) -> None:
        if self.infer_length is None:
            raise UserError(
                f"{self.name} is annealed over the run, whose length is unknown: attach it to the model before "
                "training, or give total_updates. After loading an empty buffer, detach() and attach again"
            )
        self._use_length(self.infer_length())

    def _use_length(self, total_updates: int) -> None:
        self.total_updates, self._needs_length = total_updates, False
        self.sampler = self._new_sampler(total_updates)

    def emptied(self) -> "Selection":
        """A new selection for the same buffer, now empty. An inferred length is inferred again."""
        empty = Selection(**self._options())
        empty.infer_length = self.infer_length
        # The host may still hold earlier batches, so their numbers are not used again.
        empty._first_number = self._first_number + self.draws
        return empty

    def _options(self) -> Options:
        return {
            "config": self.config,
            "capacity": self.capacity,
            "seed": self.seed,
            "total_updates": self._given_updates,
            "draws_ahead": self.draws_ahead,
            "length_is_inferred": self.length_is_inferred,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of the state. If the last update was interrupted, its batch is dropped."""
        self.settle(drops_incomplete=self.trained is not None)
        own = {f"sampler.{name}": value.clone() for name, value in self.sampler.state_dict().items()}
        own["last_report"] = torch.from_numpy(self.last_report.copy())
        if len(self._slot_of):
            own["slot_of"], own["place_of"] = map(torch.from_numpy, (self._slot_of.copy(), self._place_of.copy()))
        numbers = {"draws": self.draws, "updates": self.updates, "seed": self.seed}
        return own | {name: torch.tensor(number) for name, number in numbers.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state. The next draws are the ones that the saved selection would have made."""
        self.queue.clear()
        of_host = {name: state.get(name, torch.empty(0, dtype=torch.int64)) for name in ("slot_of", "place_of")}
        checks.same_layout("selection", self.state_dict() | of_host, state | of_host)
        if int(state["seed"]) != self.seed:
            raise UserError(f"the state was saved with seed {int(state['seed'])}, not {self.seed}; use that seed")
        prefix = "sampler."
        self.sampler.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        self.draws, self.updates = int(state["draws"]), int(state["updates"])
        self.last_report[:] = state["last_report"].numpy()
        self._slot_of, self._place_of = (values.numpy().copy() for values in of_host.values())
        self.last = None

    def __getstate__(self) -> Saved:
        return {
            "options": self._options(),
            "total_updates": self.total_updates,
            "state": {name: value.numpy() for name, value in self.state_dict().items()},
        }

    def __setstate__(self, saved: Saved) -> None:
        Selection.__init__(self, **saved["options"])
        length = saved.get("total_updates")  # selections saved before it was an entry have it in the options
        if self._needs_length and length is not None:
            self._use_length(length)
        self.load_state_dict({name: torch.from_numpy(np.asarray(value)) for name, value in saved["state"].items()})


def slots_of(pending: Pending) -> Array:
    """The drawn slots as a NumPy array."""
    assert pending.draw is not None
    slots: Array = as_tensor(pending.draw.slots_view)[0].numpy()
    return slots
