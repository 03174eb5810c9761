"""What a training run is: one frozen dataclass, every field documented once; the command line is made from it."""

import re
from dataclasses import dataclass, field, make_dataclass
from itertools import combinations
from typing import Any, Literal

from aes_rl import checks, extensions, paper
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import UserError
from aes_rl.samplers.registry import RULES, with_options_of, without_options
from aes_rl.types import Signal

extensions.load()  # their samplers have options below
PAPER_TASKS = tuple(f"{name}-v5" for name in paper.TASKS)
TRAINABLE = tuple(name for name, rule in RULES.items() if Signal.EVERY_GRADIENT_NORM not in rule.needs)
"""Samplers that learn from draws; full information would need every slot's gradient after every update."""


_MOST_MEMBERS = 4096
_MOST_EPISODES = 100_000
_MOST_PROCESSES = 1000
_LONGEST_TASK = 200


def field_of(sampler: str) -> str:
    """Where `SamplerOptions` has the options of a sampler."""
    return without_options(sampler).replace("-", "_")


SamplerOptions: Any = make_dataclass(
    "SamplerOptions",
    [(field_of(name), RULES[name].config_type, field(default_factory=RULES[name].config_type)) for name in TRAINABLE],
    frozen=True,
)
"""One field a registered sampler: its options."""


@dataclass(frozen=True)
class Training:
    """A training run: samplers × seeds, every combination one member of a population."""

    task: str = "HalfCheetah-v5"
    """A Gymnasium task with vector observations and actions; the paper's eight are InvertedPendulum,
    InvertedDoublePendulum, Reacher, Hopper, HalfCheetah, Walker2d, Ant and Humanoid (v5)."""
    agent: Literal["sac", "ddpg"] = "sac"
    """Which learner; its options are below under its name."""
    samplers: tuple[str, ...] = ("adaptive",)
    """Which samplers to compare, by name: uniform, prioritized, adaptive, predictive, last-value, naive. Options after
    a colon are for that one alone, so that one sampler can be there twice: adaptive adaptive:nu=auto,floor=0.1."""
    seeds: tuple[int, ...] = (0,)
    """One member for each sampler and seed."""
    env_steps: int = 1_000_000
    """Environment steps of every member."""
    capacity: int = 1_000_000
    """Slots of every member's replay buffer."""
    steps_per_round: int = 1
    """Environment steps between two rounds of updates (the H of the paper's Algorithms 1 and 2)."""
    updates_per_round: int = 1
    """Updates a round (1 in Algorithm 2, the m of Algorithm 1)."""
    evaluate_every: int = 10_000
    """Environment steps between two evaluations."""
    evaluation_episodes: int = 10
    """Deterministic test episodes an evaluation, on environments of their own."""
    longest_evaluation: int = 10_000
    """Steps of the longest test episode: one that has no end is cut off there."""
    log_every: int = 1000
    """Environment steps between two rows of losses and weights in metrics.csv."""
    measure_variance_every: int | None = None
    """Environment steps between two measurements of how much gradient variance each sampler removes; None for never."""
    measured_slots: int = 10_000
    """Slots that a measurement looks at, chosen uniformly."""
    trace_every: int | None = None
    """Environment steps between two records of the gradient norms of the first member's slots, which make a problem to
    simulate samplers on; None for never."""
    traced_slots: int = 8192
    """Slots of a full buffer that such a record holds."""
    checkpoint_every: int = 50_000
    """Environment steps between two checkpoints; one is also written at the end and when interrupted."""
    device: str = "cpu"
    """Where replay, sampler and agent live."""
    tf32: bool = False
    """Whether a GPU may round what enters its matrix products to 10 bits behind the point: faster, and less exact."""
    workers: int | None = None
    """Processes that step environments; 0 steps them in the learner's process; default 0 for up to two members."""
    evaluation_workers: int | None = None
    """Processes that play test episodes; 0 plays them in the learner's process. Beside a GPU training goes on
    meanwhile, and they stand back for it; default there all cores but two, on the CPU as many as `workers`."""
    tensorboard: bool = False
    """Whether to write TensorBoard files too (needs the extra of that name)."""
    sac: SAC = field(default_factory=SAC)
    """Options of SAC."""
    ddpg: DDPG = field(default_factory=DDPG)
    """Options of DDPG."""
    sampler: SamplerOptions = field(default_factory=SamplerOptions)
    """Options of the samplers, by name."""

    def __post_init__(self) -> None:
        for name in (
            "env_steps",
            "capacity",
            "steps_per_round",
            "updates_per_round",
            "evaluate_every",
            "evaluation_episodes",
            "longest_evaluation",
            "log_every",
            "measured_slots",
            "traced_slots",
            "checkpoint_every",
        ):
            checks.count(name, getattr(self, name))
        if len(self.task) > _LONGEST_TASK:
            raise UserError(f"task has {len(self.task):,} characters; a name has {_LONGEST_TASK} at most")
        for name, most in (("evaluation_episodes", _MOST_EPISODES), ("env_steps", 2**31 - 1)):
            if getattr(self, name) > most:
                raise UserError(f"{name} is {getattr(self, name):,}; it may be {most:,} at most")
        if len(self.samplers) * len(self.seeds) > _MOST_MEMBERS:
            raise UserError(
                f"{len(self.samplers):,} samplers × {len(self.seeds):,} seeds are more than the {_MOST_MEMBERS:,} "
                "members that one run may have; share them out among several runs"
            )
        for name in ("measure_variance_every", "trace_every"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        for name in ("workers", "evaluation_workers"):
            if getattr(self, name) is not None:
                checks.non_negative(name, getattr(self, name))
                if getattr(self, name) > _MOST_PROCESSES:
                    raise UserError(f"{name} is {getattr(self, name):,}; there may be {_MOST_PROCESSES} at most")
        for name in self.samplers:
            if without_options(name) not in TRAINABLE:
                known = ", ".join(TRAINABLE)
                raise UserError(
                    f"unknown sampler {without_options(name)!r}; the samplers are {known}, and --module adds your own"
                )
        for kind, values in (("seeds", self.seeds), ("samplers", self.samplers)):
            if not values:
                raise UserError(f"no {kind} were given; give at least one")
            if len(set(values)) != len(values):
                raise UserError(f"{kind} {values} repeat; give each once, a repeated run would say nothing new")
        for (name, config), (other, same) in combinations(self._by_name().items(), 2):
            if config == same:
                raise UserError(f"samplers {name} and {other} have the same options; give each once")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f"device is {self.device!r}; it must be cpu, cuda, or cuda:N for one of several GPUs")
        if self.trace_every is not None and (self.steps_per_round, self.updates_per_round) != (1, 1):
            raise UserError("trace_every needs one update an environment step: a record counts visits by insertions")
        if self.trace_every is not None and self.sampler_configs[0].overwrite != "fifo":
            raise UserError(
                f"trace_every needs a first sampler that overwrites the oldest slot, such as uniform; "
                f"{self.samplers[0]} overwrites by {self.sampler_configs[0].overwrite!r}"
            )

    @property
    def agent_config(self) -> SAC | DDPG:
        """The chosen learner's options."""
        return self.sac if self.agent == "sac" else self.ddpg

    @property
    def members(self) -> list[tuple[str, int]]:
        """Sampler and seed of every member, samplers first, so that each is one slice."""
        return [(name, seed) for name in self.samplers for seed in self.seeds]

    @property
    def sampler_configs(self) -> list[Any]:
        """The sampler's options of every member."""
        by_name = self._by_name()
        return [by_name[name] for name, _ in self.members]

    def _by_name(self) -> dict[str, Any]:
        return {name: with_options_of(name, getattr(self.sampler, field_of(name))) for name in self.samplers}

    @property
    def warm_up_steps(self) -> int:
        """Environment steps with uniform actions before the first update."""
        own = self.agent_config.warm_up_steps
        return own if own is not None else max(1, min(self.agent_config.longest_warm_up, self.env_steps // 10))

    def require_learning(self) -> None:
        """Raise where the run would end before its first update, or a sampler hears of a network that is not there."""
        if self.warm_up_steps >= self.env_steps:
            raise UserError(
                f"{self.agent}.warm_up_steps is {self.warm_up_steps:,} and the run has {self.env_steps:,} environment "
                "steps, so nothing would be learned; lower the one or raise the other"
            )
        known = {"actor", "critic", "value"} if self.agent == "sac" and self.sac.value_function else {"actor", "critic"}
        for config in self.sampler_configs:
            unknown = set(getattr(config, "networks", None) or ()) - known
            if unknown:
                raise UserError(f"networks is {config.networks}; {self.agent} has {', '.join(sorted(known))}")

    @property
    def total_updates(self) -> int:
        """Updates of the whole run, at least one."""
        learning_steps = max(0, self.env_steps - self.warm_up_steps)
        return max(1, -(-learning_steps // self.steps_per_round) * self.updates_per_round)
