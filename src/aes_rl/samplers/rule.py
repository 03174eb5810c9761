"""The interface of a selection rule. A new sampler is one subclass and one line in `registry.py`."""

from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aes_rl import weighting
from aes_rl.backends import AbstractBackend
from aes_rl.backends.distribution import Overwrite
from aes_rl.errors import UserError
from aes_rl.types import Array, Draw, Report, Signal

Networks = Literal["balanced", "separate"] | tuple[str, ...] | None
"""How the networks' norms form the signal: None is their sum, a tuple of names the sum over these networks, "balanced"
their sum after each is divided by its mean over the buffer, and "separate" makes one draw for the critics and another
for the actor."""


@runtime_checkable
class SamplerConfig(Protocol):
    """The configuration of a sampler: an instance of a frozen dataclass, such as `Adaptive()`."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __init__(self, **options: object) -> None: ...


@dataclass(frozen=True)
class Setting:
    """What a rule needs to know about its slice of members (those with its configuration) and about the run."""

    members: int
    capacity: int
    total_updates: int | None
    """Number of updates in the whole run, for schedules; None if unknown."""
    backend: AbstractBackend[Array]
    dtype: torch.dtype
    """Data type of the importance weights; the same as the learner's."""


class AbstractRule(ABC):
    """Computes the masses of a slice of members; the distribution draws from them.

    `fresh`, `feedback` and `weights` may be captured in a CUDA graph: they change preallocated tensors in place and
    read no tensor on the host. `advance` and `observe_all` run on the host.
    """

    config_type: ClassVar[type[SamplerConfig]]
    """The frozen dataclass that `__init__` takes."""
    needs: ClassVar[Signal]
    """The signals that the learner must report."""
    is_unbiased: bool
    """Whether the weighted mean over draws is an unbiased estimate of the uniform mean over live slots."""
    is_sequential: bool = True
    """Whether a batch has the same effect as its reports one after the other; if not, it takes effect as a whole."""
    updates_options: ClassVar[tuple[str, ...]] = ()
    """Names of options that count updates. A simulation in which one step stands for k updates divides them by k."""
    insertions_options: ClassVar[tuple[str, ...]] = ()
    """Names of options that count insertions. A simulation in which one slot stands for k slots divides them by k."""
    networks_option: ClassVar[str | None] = None
    """Name of the option that holds `Networks`, if there is one."""
    candidates_option: ClassVar[str | None] = None
    """Name of the option that says how many candidates the replay draws for every slot that it keeps, if any."""
    actor_config_type: ClassVar[type[SamplerConfig] | None] = None
    """The configuration of the actor's own draw, with the same options, if it gets the critics' reports. Only for rules
    that need TD errors alone."""
    setting: Setting
    """What `__init__` was given."""
    floor: float
    """κ: probability reserved for uniform draws. `advance` may change it."""
    overwrite: Overwrite
    """How the slot that a new transition overwrites is chosen."""

    @abstractmethod
    def __init__(self, config: SamplerConfig, setting: Setting): ...

    @abstractmethod
    def fresh(self, slots: Int[Tensor, "p K"]) -> Float[Array, "p K"]:
        """The positive masses of slots just written. Discards all state about their old content."""

    @abstractmethod
    def feedback(self, report: Report) -> Float[Array, "p B"] | None:
        """The positive masses of the drawn slots after the learner's report; None leaves them unchanged.

        A slot drawn twice is reported twice: accumulate with `scatter_add_`, or write the values of
        `report.last_of_slot`; never write different values to one index. Learn only where `report.is_current` is true:
        elsewhere the slot was overwritten since the draw, and the mass returned for it is ignored.
        """

    def weights(self, draw: Draw) -> Float[Tensor, "p B"]:
        """The importance weights of the draw: 1/(n·p(i)) of an unbiased rule, otherwise 1."""
        if self.is_unbiased:
            return weighting.unbiased(draw, self.setting.backend, self.setting.dtype)
        return weighting.ones(draw, self.setting.dtype)

    def advance(self, update_step: int) -> Float[Array, "p N"] | None:
        """Advance schedules after update `update_step`, counted from 1. Without schedules there is nothing to do.

        Returns the masses of all N slots, or None if they are unchanged. The first n slots are live; masses
        returned for empty slots are ignored.
        """
        del update_step
        return None

    def slot_state(self) -> dict[str, Tensor]:
        """The tensors [p, N, …] with one entry per slot; loading copies a saved state into them in place.

        A checkpoint holds the entries of live slots only. `fresh` must initialise those of empty slots.
        """
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """All other tensors that change over time; loading copies a saved state into them in place."""

    def observe_all(self, squared_norms: Float[Tensor, "p n"]) -> Float[Array, "p n"]:
        """The masses of all live slots, given the squared gradient norms of all of them."""
        raise TypeError(f"{type(self).__name__} accepts no signal of all slots (shape {tuple(squared_norms.shape)})")


def draws_per_network(config: SamplerConfig) -> bool:
    """Whether a sampler makes one draw for the critics and another for the actor."""
    return _rule_of(config).actor_config_type is not None or networks_of(config) == "separate"


def config_of_actor(config: SamplerConfig) -> SamplerConfig:
    """The configuration of the actor's draw of a sampler that `draws_per_network`: by default the sampler's own."""
    config_type = _rule_of(config).actor_config_type
    return config if config_type is None else config_type(**_options(config))


def candidates_per_draw(config: SamplerConfig) -> int:
    """Candidates that a sampler looks at for every slot that it draws."""
    option = _rule_of(config).candidates_option
    count: int = 1 if option is None else getattr(config, option)
    return count


def named_networks(config: SamplerConfig) -> tuple[str, ...]:
    """The networks that a sampler's configuration names; empty if it names none."""
    networks = networks_of(config)
    return networks if isinstance(networks, tuple) else ()


def networks_of(config: SamplerConfig) -> Networks:
    """How the networks' norms form the signal of a sampler; None if its rule has no such option."""
    option = _rule_of(config).networks_option
    networks: Networks = None if option is None else getattr(config, option)
    return networks


def _options(config: SamplerConfig) -> dict[str, object]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


def _rule_of(config: SamplerConfig) -> type[AbstractRule]:
    from aes_rl.samplers.registry import rule_for  # the registry imports this module

    return rule_for(config)


def schedule(first: float, last: float | None, update_step: int, setting: Setting) -> float:
    """Linear interpolation from `first` to `last` over the updates of the run; constant if `last` is None."""
    if last is None or setting.total_updates is None:
        return first
    progress = min(1.0, update_step / setting.total_updates)
    return first + (last - first) * progress


def require_total_updates(what: str, setting: Setting) -> None:
    """Raise if the length of the run, which a schedule needs, is unknown."""
    if setting.total_updates is None:
        raise UserError(f"{what} is annealed over the run, whose length is unknown; give total_updates")
