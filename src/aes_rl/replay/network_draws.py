"""Separate draws for the networks of a member: one for its critics, one for its actor and what goes with it.

A member whose sampler has `networks="separate"` holds two distributions over the same slots. The sampler counts the
second ones as further members, behind those of the population: `Sampler` and the rules need to know nothing of this.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aes_rl.backends import AbstractBackend
from aes_rl.errors import UserError
from aes_rl.samplers.registry import rule_for
from aes_rl.samplers.rule import SamplerConfig, config_of_actor, draws_per_network
from aes_rl.streams import Streams
from aes_rl.types import CRITIC, Array, Draw, Signal, Signals

_ACTOR_KEY = 0x5DEECE66D
"""Makes another seed of a member's: the actor's draws are independent of the critics'."""


class NetworkDraws:
    """Which of the sampler's members draws for which networks of the P members of a population."""

    def __init__(self, configs: Sequence[SamplerConfig], seeds: Sequence[int], backend: AbstractBackend[Array]):
        owners = [member for member, config in enumerate(configs) if draws_per_network(config)]
        self.configs = (*configs, *(config_of_actor(configs[member]) for member in owners))
        """The configuration of each of the sampler's members."""
        self.streams = Streams([*seeds, *(seeds[member] ^ _ACTOR_KEY for member in owners)], backend)
        """The random numbers of each of the sampler's members."""
        self.members = len(configs)
        self.member_names = [f"member {number}" for number in range(self.members)]
        self.member_names += [f"the actor's draw of member {owner}" for owner in owners]
        """What error messages call each of the sampler's members."""
        separate = {member: self.members + number for number, member in enumerate(owners)}
        self.actor_members = [separate.get(member, member) for member in range(self.members)]
        """For each member, the one of the sampler that draws for its actor: itself, if it has one draw for all."""
        self._backend = backend
        own_rows = slice(self.members, len(self.configs)) if len(owners) == self.members else None
        self._actor_rows = torch.tensor(self.actor_members, device=backend.device) if own_rows is None else own_rows
        """Where the draws of the members' actors are: a slice, which is read without a copy, if all have their own."""
        for member in owners:
            rule = rule_for(configs[member])
            if rule.actor_config_type is not None and Signal.GRADIENT_NORM in rule.needs:
                raise UserError(
                    f"{configs[member]} needs gradient norms and its actor gets the critics' reports, which hold none "
                    "of the actor's; let the rule need TD errors, or give no actor_config_type"
                )
        # An actor whose rule differs from the critics' follows them: it gets their reports.
        follows = [config_of_actor(configs[member]) is not configs[member] for member in owners]
        rows = [owner if is_so else separate[owner] for owner, is_so in zip(owners, follows, strict=True)]
        self._reported_rows = (
            torch.tensor([*range(self.members), *rows], device=backend.device) if any(follows) else None
        )
        self._learners = torch.tensor([*range(self.members), *owners], device=backend.device)
        """The member that each of the draws is for."""
        of_critics = [True] * self.members
        shares = [member not in separate for member in range(self.members)]
        self._get_critics, self._get_others, self._get_errors = (
            torch.tensor(mask, device=backend.device).unsqueeze(-1)
            for mask in (of_critics + [False] * len(owners), shares + [True] * len(owners), of_critics + follows)
        )
        """Which of the draws get the critics' norms, those of the other networks, and the TD errors."""

    def slots_of_actors(self, draw: Draw) -> Array:
        """The slots of every member's actor."""
        if isinstance(self._actor_rows, slice):
            return draw.slots_view[self._actor_rows]
        return self._backend.view(draw.slots.index_select(0, self._actor_rows))

    def of_actors(self, values: Float[Tensor, "Q B"]) -> Float[Tensor, "P B"]:
        """Values of the draws of every member's actor, out of those of all draws."""
        if isinstance(self._actor_rows, slice):
            return values[self._actor_rows]
        return values.index_select(0, self._actor_rows)

    def reported(self, draw: Draw) -> Draw:
        """The draws that the members of the sampler get a report on: their own, or the critics'."""
        rows = self._reported_rows
        if rows is None:
            return draw
        slots, probabilities = (part.index_select(0, rows) for part in (draw.slots, draw.probabilities))
        return Draw(self._backend.view(slots), self._backend.view(probabilities), draw.size, draw.clock)

    def signals(self, signals: Signals) -> Signals:
        """The signals of each draw, out of those of each member: a network's norms go to the draw that it was made on.

        TD errors go to the critics' draw, and to the actors that follow it. What a draw was not made for is zero.
        """
        if signals.gradient_norm and CRITIC not in signals.gradient_norm:
            raise UserError(
                f"gradient norms of {', '.join(map(repr, signals.gradient_norm))} were reported and a member has a "
                f"draw for its critics; report the sum of the critics' norms as {CRITIC!r}"
            )
        error = None if signals.td_error is None else self._by_draw(signals.td_error, self._get_errors)
        norms = {
            name: self._by_draw(norm, self._get_critics if name == CRITIC else self._get_others)
            for name, norm in signals.gradient_norm.items()
        }
        return Signals(error, norms)

    def _by_draw(self, values: Float[Tensor, "P B"], counts: Bool[Tensor, "Q 1"]) -> Float[Tensor, "Q B"]:
        return torch.where(counts, values.index_select(0, self._learners), 0.0)
