"""Storage of transitions: one packed row per slot, so that reading a transition is one contiguous read."""

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from aes_rl import checks
from aes_rl.backends import AbstractBackend
from aes_rl.types import Array, Batch, Transition


class Storage:
    """N preallocated rows per member. It reads and writes slots; the sampler chooses them."""

    def __init__(
        self,
        members: int,
        capacity: int,
        observation_size: int,
        action_size: int,
        backend: AbstractBackend[Array],
        dtype: torch.dtype = torch.float32,
    ):
        checks.count("capacity", capacity)
        checks.count("observation_size", observation_size)
        checks.count("action_size", action_size)
        self._observation_size = observation_size
        self._action_size = action_size
        self._backend = backend
        self.rows = backend.zeros((members, capacity, 2 * observation_size + action_size + 2), dtype)
        self._view = backend.view(self.rows)
        observations, actions = (members, observation_size), (members, action_size)
        self._shapes = (observations, actions, (members,), observations, (members,))

    def pack(self, transition: Transition) -> tuple[Array, bool | Bool[Tensor, "P"]]:
        """One packed row per member, and whether the rows are finite. Raises on a field of the wrong shape."""
        before, action, reward, after, terminated = transition
        try:
            if (before.shape, action.shape, reward.shape, after.shape, terminated.shape) == self._shapes:
                return self._backend.pack(transition, self.rows.dtype)
        except (AttributeError, RuntimeError):  # a field has no shape, or requires grad
            self._refuse(transition)
            raise
        self._refuse(transition)
        raise AssertionError("every field fits")

    def _refuse(self, transition: Transition) -> None:
        """Raise an error that names the first field that is not accepted."""
        for name, field, shape in zip(transition._fields, transition, self._shapes, strict=True):
            if not isinstance(field, Tensor | np.ndarray):
                raise TypeError(f"{name} is a {type(field).__name__}; pass a tensor or a NumPy array")
            if field.shape != shape:
                raise ValueError(f"{name} is {tuple(field.shape)}; this replay holds {shape}")
            if isinstance(field, Tensor) and field.requires_grad:
                raise ValueError(f"{name} requires grad; detach it before storing it")

    def first_fault(self, member: int) -> str:
        """The name of the first field that is not finite in a row of a member."""
        columns = (~self.rows[member].isfinite()).any(dim=0)
        sizes = [self._observation_size, self._action_size, self._observation_size, 1, 1]
        names = ("observation", "action", "next_observation", "reward", "terminated")
        for name, part in zip(names, torch.split(columns, sizes), strict=True):
            if bool(part.any()):
                return name
        return "a field that was overwritten since"

    def write(self, slots: Array, packed: Array) -> None:
        """Write one packed row per member into its slot."""
        self._backend.write_rows(self._view, slots, packed)

    def read(self, slots: Array) -> Batch:
        """A copy of the transitions in the given slots."""
        return Batch(self._backend.read_rows(self._view, slots), self._observation_size, self._action_size)
