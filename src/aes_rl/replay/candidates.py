"""The second stage of samplers that look at candidates before they choose: B of m·B, by a fresh number for each.

Other members of the population have as many candidates as draws: they keep all of them, in order.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl.backends import AbstractBackend, fused
from aes_rl.errors import UserError
from aes_rl.samplers import reports
from aes_rl.samplers.rule import SamplerConfig, candidates_per_draw
from aes_rl.types import Array, Batch, Draw, as_tensor

Surrogate = Callable[[Batch], Float[Tensor, "P C"]]
"""The numbers, at least 0, in proportion to which candidates are kept: absolute TD errors in place of the norms."""


class Candidates:
    """Which candidates of each of the sampler's members become its batch."""

    def __init__(self, configs: Sequence[SamplerConfig], members: int, backend: AbstractBackend[Array]):
        """`configs` are those of the sampler's members, the first of which are the P `members` of the population."""
        counts = [candidates_per_draw(config) for config in configs]
        self.most_per_draw = max(counts)
        """Candidates per draw of the member with the most."""
        self.fault = torch.zeros(members, dtype=torch.bool, device=backend.device)
        """Members whose surrogate had a negative value, on backends that cannot raise immediately."""
        self._backend = backend
        self._counts = torch.tensor(counts, device=backend.device).unsqueeze(-1)

    def check(self, surrogate: Float[Tensor, "P C"], shape: tuple[int, int]) -> None:
        """Raise unless the surrogate is a tensor of this shape without gradient and without negative values.

        On a GPU, reading the values would stall the device: negative ones count as 0 and set `fault`.
        """
        if not isinstance(surrogate, Tensor):
            raise UserError(f"the surrogate is a {type(surrogate).__name__}; return a tensor of shape {shape}")
        reports.check_tensor("the surrogate", surrogate, shape)
        # Values that are not finite are accepted: they count as 0.
        sound = self._backend.sound(surrogate.nan_to_num(0.0, 0.0), 0.0)
        if isinstance(sound, Tensor):
            self.fault |= ~sound.all(dim=1)
        elif not sound:
            member, position = (surrogate < 0).nonzero()[0].tolist()
            raise UserError(
                f"the surrogate of member {member} is {surrogate[member, position].item()} at position {position}; it "
                "must be at least 0, such as an absolute TD error"
            )

    def chosen(self, candidates: Draw, surrogate: Float[Tensor, "P C"], uniforms: Array, batch_size: int) -> Draw:
        """The draws kept out of the candidates, with replacement, in proportion to the surrogate.

        The probability of a kept slot is such that 1/(n·p) is the weight with which the mean over kept draws is an
        unbiased estimate: p of the candidate, times its surrogate over the mean of the member's candidates.
        """
        slots, probabilities = _chosen(
            candidates.slots, candidates.probabilities, surrogate, as_tensor(uniforms), self._counts, batch_size
        )
        view = self._backend.view
        return Draw(view(slots), view(probabilities), candidates.size, candidates.clock)


def first_candidates(draw: Draw, batch_size: int, backend: AbstractBackend[Array]) -> Draw:
    """The first draws of every member."""
    slots, probabilities = (part[:, :batch_size].contiguous() for part in (draw.slots, draw.probabilities))
    return Draw(backend.view(slots), backend.view(probabilities), draw.size, draw.clock)


@fused
def _chosen(
    slots: Int[Tensor, "Q C"],
    probabilities: Float[Tensor, "Q C"],
    surrogate: Float[Tensor, "P C"],
    uniforms: Float[Tensor, "Q B"],
    counts: Int[Tensor, "Q 1"],
    batch_size: int,
) -> tuple[Int[Tensor, "Q B"], Float[Tensor, "Q B"]]:
    own = counts * batch_size  # number of a member's candidates; those behind them belong to other members' rules
    places = torch.arange(slots.shape[1], device=slots.device)
    sizes = torch.nn.functional.pad(surrogate.double(), (0, 0, 0, slots.shape[0] - surrogate.shape[0]))
    # Without any positive number all are alike. A diverged critic is reported by the losses of this update.
    sizes = torch.where((places < own) & sizes.isfinite() & (sizes > 0), sizes, 0)
    sizes = torch.where(sizes.amax(dim=1, keepdim=True) > 0, sizes, (places < own).double())
    sums = sizes.cumsum(dim=1)
    totals = sums[:, -1:]
    found = torch.searchsorted(sums, uniforms * totals)
    found = torch.where(counts > 1, found, places[:batch_size])
    share = torch.where(counts > 1, sizes.gather(1, found) * own / totals, 1)
    return slots.gather(1, found), probabilities.gather(1, found) * share
