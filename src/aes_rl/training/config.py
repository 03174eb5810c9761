"""The options of a training run: one frozen dataclass, from which the command line is generated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from aes_rl import checks, extensions, paper
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import UserError
from aes_rl.samplers.registry import (
    RULES,
    configure,
    find,
    rule_for,
    with_options_of,
    without_options,
)
from aes_rl.samplers.rule import SamplerConfig, candidates_per_draw, named_networks
from aes_rl.training.option_groups import Main, Recording, Resources, Rounds
from aes_rl.types import Signal

extensions.load()  # processes that this one starts train with the same samplers
PAPER_TASKS = tuple(f"{name}-v5" for name in paper.TASKS)
_LONGEST_EVALUATION_INTERVAL = 10_000
_LONGEST_CHECKPOINT_INTERVAL = 50_000
_MAX_MEMBERS = 4096
_MAX_EPISODES = 100_000
_MAX_PROCESSES = 1000
_MAX_TASK_LENGTH = 200


def option_key(sampler: str) -> str:
    """Key of a sampler's options in `Training.sampler`."""
    return without_options(sampler).replace("-", "_")


@dataclass(frozen=True)
class Training(Resources, Recording, Rounds, Main):
    """Options of a training run. Every combination of a sampler and a seed is one member of the population.

    An option of None that follows from env_steps is a number once the run has begun: see `resolved`.
    """

    sac: SAC = field(default_factory=SAC)
    """Options of SAC."""
    ddpg: DDPG = field(default_factory=DDPG)
    """Options of DDPG."""
    sampler: Mapping[str, SamplerConfig] = field(default_factory=dict)
    """Options of the samplers, by name; the others have their defaults."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", _completed(self.sampler, self.samplers))
        for name in (
            "env_steps",
            "capacity",
            "steps_per_round",
            "updates_per_round",
            "evaluation_episodes",
            "longest_evaluation",
            "log_every",
            "measured_slots",
            "traced_slots",
            "trace_burst",
            "trace_burst_every",
        ):
            checks.count(name, getattr(self, name))
        if len(self.task) > _MAX_TASK_LENGTH:
            raise UserError(f"task has {len(self.task):,} characters; a name may have {_MAX_TASK_LENGTH} at most")
        for name, most in (("evaluation_episodes", _MAX_EPISODES), ("env_steps", 2**31 - 1)):
            if getattr(self, name) > most:
                raise UserError(f"{name} is {getattr(self, name):,}; it may be {most:,} at most")
        for seed in self.seeds:
            checks.index("seed", seed)
        if len(self.samplers) * len(self.seeds) > _MAX_MEMBERS:
            raise UserError(
                f"{len(self.samplers):,} samplers × {len(self.seeds):,} seeds are more than the {_MAX_MEMBERS:,} "
                "members that one run may have; divide them among several runs"
            )
        for name in ("evaluate_every", "checkpoint_every", "measure_variance_every", "trace_every"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        for name in ("workers", "evaluation_workers"):
            if getattr(self, name) is not None:
                checks.non_negative(name, getattr(self, name))
                if getattr(self, name) > _MAX_PROCESSES:
                    raise UserError(f"{name} is {getattr(self, name):,}; there may be {_MAX_PROCESSES} at most")
        for kind, values in (("seeds", self.seeds), ("samplers", self.samplers)):
            if not values:
                raise UserError(f"no {kind} were given; give at least one")
            if len(set(values)) != len(values):
                raise UserError(f"{kind} {values} repeat; give each once, repeated runs are identical")
        for (name, config), (other, same) in combinations(self._configs_by_name().items(), 2):
            if config == same:
                raise UserError(f"samplers {name} and {other} have the same options; give each once")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f"device is {self.device!r}; it must be cpu, cuda, or cuda:N for one of several GPUs")
        if self.trace_every is not None and (self.steps_per_round, self.updates_per_round) != (1, 1):
            raise UserError(
                "trace_every needs one update per environment step: a recording counts visits by insertions"
            )
        longest_burst = (self.trace_burst - 1) * self.trace_burst_every
        if self.trace_every is not None and longest_burst >= self.trace_every:
            raise UserError(
                f"trace_burst is {self.trace_burst} with {self.trace_burst_every} steps between its recordings, and "
                f"trace_every is {self.trace_every}: bursts would overlap; record fewer or closer moments"
            )
        first = self.sampler_configs[0]
        overwrite = getattr(first, "overwrite", None) or getattr(rule_for(first), "overwrite", None)
        if self.trace_every is not None and overwrite != "fifo":
            raise UserError(
                f"trace_every needs a first sampler that overwrites the oldest slot, such as uniform; "
                f"{self.samplers[0]} overwrites by {overwrite!r}"
            )

    @property
    def agent_config(self) -> SAC | DDPG:
        """Options of the chosen agent."""
        return self.sac if self.agent == "sac" else self.ddpg

    @property
    def members(self) -> list[tuple[str, int]]:
        """Sampler and seed of every member, ordered by sampler, so that each sampler is one slice of the population."""
        return [(name, seed) for name in self.samplers for seed in self.seeds]

    @property
    def sampler_configs(self) -> list[SamplerConfig]:
        """Sampler options of every member."""
        by_name = self._configs_by_name()
        return [by_name[name] for name, _ in self.members]

    def _configs_by_name(self) -> dict[str, SamplerConfig]:
        return {name: with_options_of(name, self.sampler[option_key(name)]) for name in self.samplers}

    @property
    def warm_up_steps(self) -> int:
        """Environment steps with uniform actions before the first update."""
        own = self.agent_config.warm_up_steps
        return own if own is not None else max(1, min(self.agent_config.longest_warm_up, self.env_steps // 10))

    @property
    def evaluation_interval(self) -> int:
        """Environment steps between two evaluations."""
        return self.evaluate_every or max(1, min(_LONGEST_EVALUATION_INTERVAL, self.env_steps // 10))

    @property
    def checkpoint_interval(self) -> int:
        """Environment steps between two checkpoints."""
        return self.checkpoint_every or max(1, min(_LONGEST_CHECKPOINT_INTERVAL, self.env_steps // 3))

    def resolved(self, like: "Training | None" = None) -> "Training":
        """The configuration with numbers where None follows from env_steps: those of another run, or else its own.

        A run that is extended keeps the numbers that it began with.
        """
        other = like or self
        warm_up_steps = self.agent_config.warm_up_steps
        if warm_up_steps is None:
            warm_up_steps = other.warm_up_steps
        return replace(
            self,
            evaluate_every=self.evaluate_every or other.evaluation_interval,
            checkpoint_every=self.checkpoint_every or other.checkpoint_interval,
            sac=replace(self.sac, warm_up_steps=warm_up_steps) if self.agent == "sac" else self.sac,
            ddpg=replace(self.ddpg, warm_up_steps=warm_up_steps) if self.agent == "ddpg" else self.ddpg,
        )

    def require_learning(self) -> None:
        """Raise if the run would end before its first update, or a sampler uses a network that the agent lacks."""
        if self.warm_up_steps >= self.env_steps:
            raise UserError(
                f"{self.agent}.warm_up_steps is {self.warm_up_steps:,} and the run has {self.env_steps:,} environment "
                "steps, so nothing would be learned; lower warm_up_steps or raise env_steps"
            )
        for name, config in self._configs_by_name().items():
            if self.measure_variance_every is not None and candidates_per_draw(config) > 1:
                raise UserError(
                    f"measure_variance_every is set and the sampler {name!r} has no fixed probability per slot to "
                    "measure; leave it out"
                )
        known = {"actor", "critic", "value"} if self.agent == "sac" and self.sac.value_function else {"actor", "critic"}
        for config in self.sampler_configs:
            networks = named_networks(config)
            if set(networks) - known:
                raise UserError(f"networks is {networks}; {self.agent} has {', '.join(sorted(known))}")

    @property
    def total_updates(self) -> int:
        """Number of updates in the whole run, at least one."""
        learning_steps = max(0, self.env_steps - self.warm_up_steps)
        return max(1, -(-learning_steps // self.steps_per_round) * self.updates_per_round)


def _completed(given: Mapping[str, SamplerConfig], samplers: tuple[str, ...]) -> dict[str, SamplerConfig]:
    """Options of all samplers known so far and of those of the run, so that config.json holds everything it used."""
    for name in map(without_options, samplers):
        if Signal.EVERY_GRADIENT_NORM in find(name).needs:
            raise UserError(f"sampler {name!r} needs the gradients of all slots after every update; train with others")
    known = {option_key(name): name for name, rule in RULES.items() if Signal.EVERY_GRADIENT_NORM not in rule.needs}
    options = {key: configure(name) for key, name in known.items()}
    for name, config in given.items():
        key = option_key(name)
        if key not in known:
            raise UserError(f"sampler has options of {name!r}; the samplers are {', '.join(known.values())}")
        if rule_for(config) is not find(known[key]):
            raise UserError(f"sampler has {config!r} for {name}; give {find(known[key]).config_type.__name__}()")
        options[key] = config
    return options
