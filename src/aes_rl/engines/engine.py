"""The loops that cost time, whichever engine runs them."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aes_rl.engines.forecasts import Knowledge
from aes_rl.types import Counter, EngineName, Transition, View


class AbstractEngine(ABC):
    """Functions of tensors without state. The two engines must agree, integers exactly and floats to rounding."""

    name: EngineName
    device: torch.device

    @abstractmethod
    def counter(self) -> Counter:
        """A clock at zero: a plain number, or a tensor where captured code has to move it."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros for large data that is read at random."""

    @abstractmethod
    def view(self, tensor: Tensor) -> View:
        """The same memory in the form this engine's loops take."""

    @abstractmethod
    def uniform(self, keys: View, counter: Counter, count: int) -> View:
        """Splitmix64 started at a hash of (key, counter), as (2k+1)·2⁻⁵³ for the upper 52 bits k: never 0 or 1."""

    @abstractmethod
    def pack(self, transition: Transition, dtype: torch.dtype) -> tuple[View, bool | Bool[Tensor, "P"]]:
        """One row a member: observation, action, next observation, reward, terminated; and whether they are finite.

        The verdict is one for all members on the host, and one for each of them on a device.
        """

    @abstractmethod
    def write_rows(self, rows: View, slots: View, packed: View) -> None:
        """Put one packed row of every member into its slot."""

    @abstractmethod
    def read_rows(self, rows: View, slots: View) -> Float[Tensor, "P B D"]:
        """The rows in some slots, copied out."""

    @abstractmethod
    def within(self, values: Float[Tensor, "P B"], lowest: float) -> bool | Bool[Tensor, "P B"]:
        """Whether values are finite and at least `lowest`: all of them on the host, each of them on a device."""

    @abstractmethod
    def unbiased_weights(self, probabilities: View, size: Counter, dtype: torch.dtype) -> Float[Tensor, "p B"]:
        """λ_i = 1 / (n · p(i)) (S1)."""

    @abstractmethod
    def accumulate(
        self,
        sums: View,
        slots: View,
        probabilities: View,
        squared_norms: Float[Tensor, "p B"],
        nu: View,
    ) -> Float[Tensor, "p B"]:
        """w(i) ← w(i) + d(i)/p(i) for every draw, repeated ones too (S7); the masses √(w(i) + ν) of the drawn slots."""

    @abstractmethod
    def clear(self, sums: View, slots: Int[Tensor, "p K"], nu: View) -> Float[Tensor, "p K"]:
        """w(i) ← 0 of slots just written (S10); their masses √ν."""

    @abstractmethod
    def observe(
        self,
        known: Knowledge,
        slots: View,
        probabilities: View,
        size: Counter,
        squared_norms: Float[Tensor, "p B"],
        keep: float,
        horizon: int,
    ) -> Float[Tensor, "p B"]:
        """Learn what one update's norms say about the next ones (S15); the masses √E[d] of the drawn slots.

        What is known of means and slopes fades by `keep` first. The masses are for an age of at least `horizon`. Of a
        slot drawn twice the last norm stays; a norm of zero says nothing.
        """

    @abstractmethod
    def forget(self, known: Knowledge, slots: View) -> Float[Tensor, "p K"]:
        """Know nothing of slots just written; their masses, √E[d] of a slot never seen."""

    @abstractmethod
    def forecast(self, known: Knowledge) -> Float[Tensor, "p N"]:
        """The masses √E[d] of all slots, by their ages now."""
