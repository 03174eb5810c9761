"""An agent whose updates on the CPU run as products and compiled loops."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.compiled import loops
from aes_rl.agents.compiled.network import Floats
from aes_rl.agents.learner import Adam
from aes_rl.gradients.perceptron import Perceptron
from aes_rl.types import CRITIC, ActorBatch, Batch, Signals


class Rows(NamedTuple):
    """The batch of a loss as packed rows, with its weights."""

    rows: Floats
    weights: Floats


class AbstractProgram(ABC):
    """The update of an agent on batches of one size, in preallocated memory. It changes the agent's own parameters."""

    @abstractmethod
    def differentiate(self, critic: Rows, actor: Rows, noise: Floats, first: int, last: int) -> Update:
        """As `AbstractAgent.differentiate`, for packed rows and with gradient norms for members `first` to `last`."""

    @abstractmethod
    def descend(self) -> None:
        """As `AbstractAgent.descend`."""


class CompiledAgent(AbstractAgent):
    """An agent that acts and updates without autograd. It shares all memory with its reference, a readable agent.

    What the compiled form does not cover runs on the reference: greedy actions, TD errors of candidates, and norms in
    another metric.
    """

    def __init__(
        self,
        reference: AbstractAgent,
        program: Callable[[int], AbstractProgram],
        act: Callable[[Float[Tensor, "P O"], Float[Tensor, "P A"]], Float[Tensor, "P A"]],
        explores_with_state: bool,
    ):
        """`program` makes the update for a batch size; `act` computes exploration actions, possibly from a state."""
        self._explores_with_state = explores_with_state
        self.reference, self.norm_metric = reference, reference.norm_metric
        self._make_program, self._act = program, act
        self._batch_size = 0
        self._program: AbstractProgram | None = None
        self._descend: Callable[[], None] = reference.descend

    @override
    def noise_size(self, batch_size: int) -> int:
        return self.reference.noise_size(batch_size)

    @override
    def act(self, observation: Float[Tensor, "P O"], noise: Float[Tensor, "P A"]) -> Float[Tensor, "P A"]:
        return self._act(observation, noise)

    @override
    def act_greedily(self, observation: Float[Tensor, "P E O"]) -> Float[Tensor, "P E A"]:
        return self.reference.act_greedily(observation)

    @override
    def end_episode(self, ended: Float[Tensor, "P"]) -> None:
        if self._explores_with_state:
            self.reference.end_episode(ended)

    @override
    def differentiate(
        self,
        batch: Batch,
        weights: Float[Tensor, "P B"],
        noise: Float[Tensor, "P count"],
        norm_members: slice | None,
        actor: ActorBatch | None = None,
    ) -> Update:
        if self.norm_metric != "euclidean":
            self._descend = self.reference.descend
            self.reference.norm_metric = self.norm_metric
            return self.reference.differentiate(batch, weights, noise, norm_members, actor)
        members, size = weights.shape
        if self._program is None or self._batch_size != size:
            self._program, self._batch_size = self._make_program(size), size
        self._descend = self._program.descend
        first, last, _ = (0, 0, 1) if norm_members is None else norm_members.indices(members)
        critic_rows = Rows(batch.rows.numpy(), weights.numpy())
        actor_rows = critic_rows if actor is None else Rows(actor.batch.rows.numpy(), actor.weights.numpy())
        return self._program.differentiate(critic_rows, actor_rows, noise.numpy(), first, last)

    @override
    def td_errors(self, batch: Batch, noise: Float[Tensor, "P count"]) -> Float[Tensor, "P B"]:
        return self.reference.td_errors(batch, noise)

    @override
    def descend(self) -> None:
        self._descend()

    @override
    def trained(self) -> dict[str, Perceptron]:
        return self.reference.trained()

    @override
    def metric(self) -> dict[str, list[tuple[Tensor, Tensor]]]:
        return self.reference.metric()

    @override
    def state_dict(self) -> dict[str, Tensor]:
        return self.reference.state_dict()


class CompiledAdam:
    """The steps of an optimiser as one compiled loop per block, which also moves the target."""

    def __init__(self, optimiser: Adam):
        self._rates = (optimiser.learning_rate, optimiser.weight_decay)
        self._target_rate = optimiser.target_rate
        nothing = np.zeros(0, np.float32)
        self._blocks = [
            (
                block.view(-1).numpy(), gradient.view(-1).numpy(), mean.view(-1).numpy(), square.view(-1).numpy(),
                steps.view(1).numpy(), nothing if target is None else target.view(-1).numpy(),
            )
            for block, gradient, mean, square, steps, target in optimiser.blocks()
        ]  # fmt: skip

    def step(self, numbers: tuple[int, ...] | None = None) -> None:
        """One step for the blocks with the given numbers, or for all."""
        for number in range(len(self._blocks)) if numbers is None else numbers:
            block, gradient, mean, square, steps, target = self._blocks[number]
            loops.adam(block, gradient, mean, square, steps, *self._rates, target, self._target_rate)


def as_update(
    losses: dict[str, Floats], td_error: Floats, critic: Rows, actor: Rows, norms: dict[str, Floats], has_norms: bool
) -> Update:
    """The results of an update as tensors; `norms` are those of the weighted mean terms."""
    if has_norms:
        for name, squares in norms.items():
            loops.undo_weights((critic if name == CRITIC else actor).weights, squares)
    reported = {name: torch.from_numpy(squares) for name, squares in norms.items()} if has_norms else {}
    return Update(
        {name: torch.from_numpy(loss) for name, loss in losses.items()}, Signals(torch.from_numpy(td_error), reported)
    )
