"""The sampler: one distribution for all members and one rule per slice of members. It does not store transitions."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl import backends, checks
from aes_rl.backends import AbstractBackend
from aes_rl.backends.distribution import OVERWRITES
from aes_rl.errors import UserError
from aes_rl.samplers import reports
from aes_rl.samplers.registry import resolve, rule_for
from aes_rl.samplers.rule import AbstractRule, SamplerConfig, Setting
from aes_rl.types import Array, BackendName, Draw, Signal, Signals, as_tensor


class _Slice(NamedTuple):
    members: slice
    rule: AbstractRule


class Sampler:
    """Chooses slots for P members: which to write and which to draw, with importance weights. Learns from feedback.

    On the CPU, invalid signals raise immediately. On a GPU, reading them would stall the device: they are ignored and
    set a flag, and `check` raises.
    """

    def __init__(
        self,
        configs: Sequence[SamplerConfig | str],
        *,
        capacity: int,
        total_updates: int | None = None,
        device: torch.device | str = "cpu",
        backend: BackendName | None = None,
        dtype: torch.dtype = torch.float32,
        member_names: Sequence[str] | None = None,
    ):
        """Create one member per configuration; equal neighbours share a rule. `dtype` is that of the weights.

        A configuration may be given by name, with options if any: "adaptive:nu=auto,floor=0.1". `member_names` are the
        names of the members in error messages, by default their numbers.
        """
        checks.count("capacity", capacity)
        if total_updates is not None:
            checks.count("total_updates", total_updates)
        checks.choice("dtype", dtype, (torch.float32, torch.float64))
        self.configs = resolve_all(configs)
        self.members = len(self.configs)
        """Number of members."""
        self._member_names = member_names or [f"member {number}" for number in range(self.members)]
        self.capacity = capacity
        self.backend = backends.choose(backend, device)
        self._slices = tuple(_slices(self.configs, capacity, total_updates, self.backend, dtype))
        counts = [(s.members.stop - s.members.start, s.rule) for s in self._slices]
        floors = [rule.floor for count, rule in counts for _ in range(count)]
        for _, rule in counts:
            checks.choice(f"{type(rule).__name__}.overwrite", rule.overwrite, OVERWRITES)
        overwrites = [rule.overwrite for count, rule in counts for _ in range(count)]
        self.distribution = self.backend.distribution(floors, overwrites, capacity)
        self.needs = Signal.NONE
        for part in self._slices:
            self.needs |= part.rule.needs
        self._needs_errors, self._needs_norms = (s in self.needs for s in (Signal.TD_ERROR, Signal.GRADIENT_NORM))
        self._learning = tuple(s for s in self._slices if s.rule.needs & (Signal.TD_ERROR | Signal.GRADIENT_NORM))
        """The slices whose rules learn from drawn slots."""
        self._fault = torch.zeros(len(self.configs), dtype=torch.bool, device=self.backend.device)
        self._is_empty = True
        self._floors = self.backend.view(self.distribution.floor)

    @property
    def rules(self) -> tuple[AbstractRule, ...]:
        """The rules, in the order of their slices of members."""
        return tuple(rule for _, rule in self._slices)

    def __len__(self) -> int:
        """Number of live slots per member."""
        return int(self.distribution.size)

    def place(self, uniforms: Array) -> Array:
        """Choose distinct slots [P, K] for K new transitions per member; they count as written from now on.

        Takes 2K uniform random numbers per member, such as those of `Streams.uniform`.
        """
        self._check_members("the uniforms are", uniforms)
        if uniforms.shape[1] % 2 or not uniforms.shape[1]:
            raise ValueError(f"{uniforms.shape[1]} uniforms per member were given; place needs two per transition")
        slots = self.distribution.place(uniforms)
        self._is_empty = False
        self._renew(slots)
        return slots

    def renew(self, slots: Array) -> None:
        """Mark live slots [P, K] as overwritten by the caller. Report on all draws before calling this."""
        self._check_members("the slots are", slots)
        if self.backend.device.type == "cpu":
            checks.live_slots(as_tensor(slots), len(self))
        self._renew(slots)

    def _renew(self, slots: Array) -> None:
        parts = [rule.fresh(as_tensor(slots[members])) for members, rule in self._slices]
        masses = parts[0] if len(parts) == 1 else torch.cat([as_tensor(part) for part in parts])
        self.distribution.write(slice(0, self.members), slots, masses)

    def draw(self, uniforms: Array) -> Draw:
        """Draw B live slots per member and their current probabilities, from B uniform random numbers per member."""
        self._check_members("the uniforms are", uniforms)
        if self._is_empty:
            raise ValueError(f"cannot draw a batch of {uniforms.shape[1]} from an empty replay; add a transition first")
        return self.distribution.draw(uniforms)

    def weights(self, draw: Draw) -> Float[Tensor, "P B"]:
        """The importance weight of every drawn slot, which multiplies its term in every loss."""
        if len(self._slices) == 1:
            return self._slices[0].rule.weights(draw)
        return torch.cat([rule.weights(draw.of_members(members)) for members, rule in self._slices])

    def feedback(self, draw: Draw, signals: Signals) -> None:
        """Report the signals of the drawn slots to the rules; slots overwritten since the draw are skipped."""
        self._check_members("the draw is", draw.slots_view)
        reports.check(signals, self._needs_errors, self._needs_norms, draw)
        if not self._learning:
            return
        report = reports.screened(signals, draw, self.distribution, self.backend, self._fault, self._member_names)
        for members, rule in self._learning:
            part = report if len(self._slices) == 1 else reports.part_of(report, members)
            masses = rule.feedback(part)
            if masses is not None:
                self.distribution.write(members, part.draw.slots_view, masses, part.is_current_view)

    def observe_all(self, squared_norms: Float[Tensor, "P n"]) -> None:
        """Report the squared gradient norm of every live slot to full-information rules."""
        if Signal.EVERY_GRADIENT_NORM not in self.needs:
            raise TypeError("these samplers learn from drawn slots; use feedback, or the sampler 'full-information'")
        if squared_norms.requires_grad:
            raise ValueError("the signal of all slots requires grad; detach it first")
        if squared_norms.shape != (self.members, len(self)):
            raise ValueError(
                f"the signal is {tuple(squared_norms.shape)}; it must cover all live slots: {(self.members, len(self))}"
            )
        sound = self.backend.sound(squared_norms, 0.0)
        if sound is False:
            name = "the signal of all slots"
            raise UserError(reports.invalid_value_message(name, squared_norms, 0.0, self._member_names))
        if isinstance(sound, Tensor):
            self._fault |= ~sound.all(dim=1)
            squared_norms = torch.where(sound, squared_norms, 0)
        for members, rule in self._slices:
            if Signal.EVERY_GRADIENT_NORM in rule.needs:
                self.distribution.refill(members, rule.observe_all(squared_norms[members]))

    def advance(self, update_step: int) -> None:
        """End update `update_step` (from 1): forgetting and schedules. Call it on the host, once after every update."""
        for members, rule in self._slices:
            floor = rule.floor
            masses = rule.advance(update_step)
            if rule.floor != floor:
                self._floors[members] = rule.floor
            if masses is None:
                continue
            shape = (members.stop - members.start, self.capacity)
            if masses.shape != shape:
                raise UserError(
                    f"advance of {type(rule).__name__} returned masses {tuple(masses.shape)}; it must return those "
                    f"of all slots, {shape}, or None"
                )
            self.distribution.refill(members, masses)

    def probabilities(self) -> Float[Tensor, "P n"]:
        """The current probability p(i) of every live slot."""
        return self.distribution.probabilities()

    def check(self) -> None:
        """Raise if a signal or a mass since the last check was invalid. Synchronizes with the device."""
        if bool(self.distribution.fault.any()):
            faulty = self._names_where(self.distribution.fault)
            self.distribution.fault.zero_()
            raise UserError(
                f"the rule of {faulty} returned a mass that is not finite and above 0; the affected slots kept "
                "their old mass"
            )
        if bool(self._fault.any()):
            faulty = self._names_where(self._fault)
            self._fault.zero_()
            raise UserError(
                f"{faulty} reported a negative or non-finite signal; the affected draws were skipped. "
                "Check the losses: the usual cause is a diverged critic"
            )

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors that change over time. Most are not copies: copy them before the sampler changes again."""
        state = {f"distribution.{name}": value for name, value in self.distribution.state_dict().items()}
        for number, (_, rule) in enumerate(self._slices):
            own = rule.slot_state() | rule.state_dict()
            state |= {self._entry(number, name): value for name, value in own.items()}
        return state

    def slot_entries(self) -> frozenset[str]:
        """Names of the state entries with one value per slot, [P, N, …]."""
        rules = enumerate(rule for _, rule in self._slices)
        known = {self._entry(number, name) for number, rule in rules for name in rule.slot_state()}
        return frozenset({"distribution.masses", "distribution.stamps"} | known)

    def _entry(self, number: int, name: str) -> str:
        """The name of a rule's tensor in the state."""
        members, _ = self._slices[number]
        return f"rules.{number}.{type(self.configs[members.start]).__name__}.{name}"

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved state: the next draws are those that the saved sampler would have made."""
        own = self.state_dict()
        checks.same_layout("sampler", own, state)
        for floor in state["distribution.floor"].flatten().tolist():
            checks.fraction("the state's distribution.floor", floor)
        for name, value in own.items():
            if name.startswith("rules."):
                value.copy_(state[name])
        prefix = "distribution."
        self._fault.zero_()
        self.distribution.fault.zero_()
        self.distribution.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})
        for members, rule in self._slices:
            rule.floor = float(self.distribution.floor[members.start])
        self._is_empty = len(self) == 0

    def _names_where(self, fault: Bool[Tensor, "P"]) -> str:
        return " and ".join(self._member_names[number] for number in fault.nonzero().flatten().tolist())

    def _check_members(self, what: str, view: Array) -> None:
        if view.shape[0] != self.members:
            raise ValueError(f"{what} for {view.shape[0]} members; this sampler serves {self.members}")


def resolve_all(configs: Sequence[SamplerConfig | str]) -> tuple[SamplerConfig, ...]:
    """The configurations of all members, each of which may be given by name."""
    if isinstance(configs, str) or not isinstance(configs, Sequence):
        raise TypeError(f"the samplers are {configs!r}; pass a list with one configuration per member: [{configs!r}]")
    if not configs:
        raise ValueError("no sampler was given; pass one configuration per member, such as [Adaptive()]")
    return tuple(map(resolve, configs))


def _slices(
    configs: tuple[SamplerConfig, ...],
    capacity: int,
    total_updates: int | None,
    backend: AbstractBackend[Array],
    dtype: torch.dtype,
) -> Iterator[_Slice]:
    start = 0
    for config, same in groupby(configs):
        stop = start + len(list(same))
        setting = Setting(stop - start, capacity, total_updates, backend, dtype)
        rule = rule_for(config)(config, setting)
        for name, value in rule.slot_state().items():
            if tuple(value.shape[:2]) != (setting.members, capacity):
                raise UserError(
                    f"slot_state of {type(rule).__name__} has {name} of shape {tuple(value.shape)}; it must begin with "
                    f"members and slots, {setting.members}, {capacity}. Tensors without slots belong in state_dict"
                )
        yield _Slice(slice(start, stop), rule)
        start = stop
