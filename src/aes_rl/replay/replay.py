"""The replay buffer: storage and sampler combined."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl import backends, checks
from aes_rl.backends import fused
from aes_rl.errors import UserError
from aes_rl.replay.ages import FeedbackAges
from aes_rl.replay.candidates import Candidates, Surrogate, first_candidates
from aes_rl.replay.network_draws import NetworkDraws
from aes_rl.replay.storage import Storage
from aes_rl.samplers import reports
from aes_rl.samplers.registry import rule_for
from aes_rl.samplers.rule import SamplerConfig, candidates_per_draw, draws_per_network
from aes_rl.samplers.sampler import Sampler, resolve_all
from aes_rl.streams import Stream, Streams, as_int64
from aes_rl.types import ActorBatch, BackendName, Batch, Counter, Draw, Signal, Signals, Transition, as_tensor


class Sample(NamedTuple):
    """A batch, the draw it was read for, and the importance weights for its losses."""

    batch: Batch
    draw: Draw
    """Give it to `feedback`. With separate draws it holds those of the actors, too, behind those of the members."""
    weights: Float[Tensor, "P B"]
    actor: ActorBatch | None = None
    """What the losses other than the critics' are computed on, if any member draws separately for them."""


class Replay:
    """The replay buffers of P members: `add`, `sample`, `feedback`, `advance`.

    A single agent is a population of one: `Replay([Adaptive()], seeds=[0], …)`. The random numbers of a draw depend
    only on the member's seed and on the number of earlier draws and insertions.
    """

    def __init__(
        self,
        samplers: Sequence[SamplerConfig | str],
        *,
        capacity: int,
        observation_size: int,
        action_size: int,
        seeds: Sequence[int],
        total_updates: int | None = None,
        device: torch.device | str = "cpu",
        backend: BackendName | None = None,
        dtype: torch.dtype = torch.float32,
        remembers_feedback: bool = False,
    ):
        """Create buffers of `capacity` transitions, with one sampler (configuration or name) and one seed per member.

        `remembers_feedback` records the update of every slot's last report, so that feedback ages can be measured.
        """
        configs = resolve_all(samplers)
        if len(configs) != len(seeds):
            raise UserError(f"{len(configs)} samplers and {len(seeds)} seeds were given; pass one of each per member")
        self._backend = backends.choose(backend, device)
        has_separate_draws = any(map(draws_per_network, configs))
        self.network_draws = NetworkDraws(configs, seeds, self._backend) if has_separate_draws else None
        """The actors' own draws; None if every member has one draw for all its networks."""
        self.sampler = Sampler(
            self.network_draws.configs if self.network_draws else configs,
            capacity=capacity,
            total_updates=total_updates,
            device=device,
            backend=backend,
            dtype=dtype,
            member_names=self.network_draws.member_names if self.network_draws else None,
        )
        """Its members are those of the population and, behind them, the actors with draws of their own."""
        looks_ahead = any(candidates_per_draw(config) > 1 for config in configs)
        self._candidates = Candidates(self.sampler.configs, len(configs), self._backend) if looks_ahead else None
        wanting = [member for member, config in enumerate(configs) if Signal.GRADIENT_NORM in rule_for(config).needs]
        self.norm_members = slice(wanting[0], wanting[-1] + 1) if wanting else None
        """The smallest slice that contains all members that need gradient norms; None if there are none."""
        self.storage = Storage(len(seeds), capacity, observation_size, action_size, self._backend, dtype)
        self.streams = Streams(seeds, self._backend)
        self._draw_streams = self.network_draws.streams if self.network_draws else self.streams
        self.draws = self._backend.counter()
        """Number of draws so far: the counter of the draw stream."""
        self._batch_size: int | None = None  # the last one, which was valid
        self.ages = FeedbackAges(self.sampler.members, capacity, self._backend.device) if remembers_feedback else None
        """Feedback ages of all slots, if `remembers_feedback`."""
        # First insertion of each member that was not finite, on backends that cannot raise immediately; 0 if none.
        self._fault = torch.zeros(len(seeds), dtype=torch.int64, device=self._backend.device)

    def __len__(self) -> int:
        """Number of live slots per member."""
        return len(self.sampler)

    @property
    def insertions(self) -> Counter:
        """Number of transitions stored so far per member, including overwritten ones."""
        return self.sampler.distribution.clock

    @property
    def is_listening(self) -> bool:
        """Whether feedback has any effect."""
        return bool(self.sampler.needs) or self.ages is not None

    def add(self, transition: Transition) -> None:
        """Store one transition per member."""
        packed, finite = self.storage.pack(transition)
        if isinstance(finite, Tensor):
            self._fault.copy_(_first_faults(self._fault, finite, self.sampler.distribution.clock))
        elif not finite:
            raise UserError(_not_finite_message(transition, self.storage.rows.dtype))
        uniforms = self._draw_streams.uniform(Stream.PLACE, self.sampler.distribution.clock, 2)
        slots = self.sampler.place(uniforms)
        self.storage.write(slots[: len(self.streams.seeds)], packed)
        if self.ages is not None:
            self.ages.forget(as_tensor(slots))

    def sample(self, batch_size: int, surrogate: Surrogate | None = None) -> Sample:
        """Draw a batch per member, with replacement.

        `surrogate` gives a number per transition to samplers that choose among candidates, such as `LaBER`: the
        absolute TD errors, in the agents here `td_errors`. It is called on all members' candidates, if any member has
        such a sampler.
        """
        if batch_size != self._batch_size:
            checks.count("batch_size", batch_size)
            self._batch_size = batch_size
        own, members = self.network_draws, len(self.streams.seeds)
        if self._candidates is None:
            draw = self.sampler.draw(self._draw_streams.uniform(Stream.DRAW, self.draws, batch_size))
            of_actors = draw
        else:
            draw, of_actors = self._draw_among_candidates(self._candidates, batch_size, surrogate)
        self.draws += 1
        weights = self.sampler.weights(draw)
        batch = self.storage.read(draw.slots_view[:members])
        if own is None and of_actors is draw:
            return Sample(batch, draw, weights)
        actor_weights = weights if of_actors is draw else self.sampler.weights(of_actors)
        if own is None:
            actor = ActorBatch(self.storage.read(of_actors.slots_view), actor_weights)
        else:
            actor = ActorBatch(self.storage.read(own.slots_of_actors(of_actors)), own.of_actors(actor_weights))
        return Sample(batch, draw, weights[:members], actor)

    def _draw_among_candidates(
        self, candidates: Candidates, batch_size: int, surrogate: Surrogate | None
    ) -> tuple[Draw, Draw]:
        """The draws kept out of candidates, and the first of the candidates: the actors' draws."""
        if surrogate is None:
            raise UserError(
                "the sampler chooses among candidates by their TD errors; give sample(batch_size, surrogate), a "
                "function of the candidates' batch"
            )
        count = candidates.most_per_draw * batch_size
        drawn = self.sampler.draw(self._draw_streams.uniform(Stream.DRAW, self.draws, count))
        members = len(self.streams.seeds)
        numbers = surrogate(self.storage.read(drawn.slots_view[:members]))
        candidates.check(numbers, (members, count))
        uniforms = self._draw_streams.uniform(Stream.CHOICE, self.draws, batch_size)
        chosen = candidates.chosen(drawn, numbers, uniforms, batch_size)
        return chosen, first_candidates(drawn, batch_size, self._backend)

    def read(self, slots: Int[Tensor, "P B"]) -> Batch:
        """The transitions in the given slots, which are checked on the CPU."""
        if self._backend.device.type == "cpu":
            checks.live_slots(slots, len(self))
        return self.storage.read(self._backend.view(slots.to(self.storage.rows.device)))

    def feedback(self, draw: Draw, signals: Signals) -> None:
        """Report the signals of the drawn slots to the sampler: the norms of each network on the batch it was given."""
        if self.network_draws is not None:
            reports.check_values(signals, (self.network_draws.members, draw.slots_view.shape[1]))
            draw, signals = self.network_draws.reported(draw), self.network_draws.signals(signals)
        self.sampler.feedback(draw, signals)
        if self.ages is not None:
            self.ages.note(draw, self.sampler.distribution, self.draws)

    def advance(self, update_step: int) -> None:
        """End update `update_step` (from 1): forgetting and schedules."""
        self.sampler.advance(update_step)

    def check(self) -> None:
        """Raise if a transition or a signal since the last check was invalid. Synchronizes with the device.

        On the `numba` backend invalid values raise immediately, so this never raises.
        """
        if bool(self._fault.any()):
            member = int(self._fault.nonzero()[0])
            raise UserError(
                f"{self.storage.first_fault(member)} of member {member} was not finite at insertion "
                f"{int(self._fault[member])}; the buffer now contains it: continue from an earlier checkpoint"
            )
        if self._candidates is not None and bool(self._candidates.fault.any()):
            faulty = self._candidates.fault.nonzero().flatten().tolist()
            self._candidates.fault.zero_()
            raise UserError(
                f"the surrogate of members {faulty} had negative values, which counted as 0; it must be at least 0, "
                "such as an absolute TD error"
            )
        self.sampler.check()

    def state_dict(self) -> dict[str, Tensor]:
        """Rows, sampler state, counters and seeds. Most are not copies: copy them before the replay changes again."""
        seeds = torch.tensor([as_int64(seed & (2**64 - 1)) for seed in self.streams.seeds])
        own = {"rows": self.storage.rows, "draws": torch.as_tensor(self.draws), "seeds": seeds}
        if self.ages is not None:
            own["last_report"] = self.ages.last_report
        return own | {f"sampler.{name}": value for name, value in self.sampler.state_dict().items()}

    def slot_entries(self) -> frozenset[str]:
        """Names of the state entries with one value per slot, [P, N, …]."""
        return frozenset({"rows", "last_report", *(f"sampler.{name}" for name in self.sampler.slot_entries())})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved state: the next samples are those that the saved replay would have drawn."""
        own = self.state_dict()
        checks.same_layout("replay", own, state)
        if not torch.equal(state["seeds"].cpu(), own["seeds"]):
            raise UserError(f"the state was saved with seeds {state['seeds'].tolist()}, not {self.streams.seeds}")
        prefix = "sampler."
        self.sampler.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        self.storage.rows.copy_(state["rows"])
        if self.ages is not None:
            self.ages.last_report.copy_(state["last_report"])
        if isinstance(self.draws, int):
            self.draws = int(state["draws"])
        else:
            self.draws.copy_(state["draws"])
        self._fault.zero_()
        if self._candidates is not None:
            self._candidates.fault.zero_()


@fused
def _first_faults(fault: Int[Tensor, "P"], finite: Bool[Tensor, "P"], clock: Counter) -> Int[Tensor, "P"]:
    return torch.where((fault == 0) & ~finite, clock + 1, fault)


def _not_finite_message(transition: Transition, dtype: torch.dtype) -> str:
    for name, field in zip(transition._fields, transition, strict=True):
        for member, values in enumerate(as_tensor(field)):
            if not bool(values.to(dtype).isfinite().all()):
                return f"{name} of member {member} is not finite as {dtype}: {values.tolist()}; nothing was stored"
    raise AssertionError("every field is finite")
