"""The options of a training run in the groups that `aes-rl train --help` shows; `Training` has all of them."""

from dataclasses import dataclass
from typing import Literal

AgentName = Literal["sac", "ddpg"]


@dataclass(frozen=True)
class Main:
    """The options that matter most."""

    task: str = "HalfCheetah-v5"
    """A Gymnasium task with vector observations and actions; the paper's eight are InvertedPendulum,
    InvertedDoublePendulum, Reacher, Hopper, HalfCheetah, Walker2d, Ant and Humanoid (v5)."""
    agent: AgentName = "sac"
    """The learning algorithm; its options are below, under its name."""
    samplers: tuple[str, ...] = ("predictive",)
    """Samplers to compare, by name, such as uniform prioritized adaptive predictive; each has its options below.
    Options after a colon apply to that entry alone, so that one sampler can occur twice: adaptive
    adaptive:nu=auto,floor=0.1."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; there is one member per sampler and seed."""
    env_steps: int = 1_000_000
    """Environment steps per member; a larger number extends a finished run."""
    capacity: int = 1_000_000
    """Replay buffer slots per member."""
    evaluate_every: int | None = None
    """Environment steps between two evaluations; None is a tenth of env_steps, at most 10,000."""
    measure_variance_every: int | None = None
    """Environment steps between two measurements of the gradient variance that each sampler removes (its captured
    fraction); None for never."""
    device: str = "cpu"
    """Device of replay, sampler and agent: cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Rounds:
    """How often the networks are updated."""

    steps_per_round: int = 1
    """Environment steps between two rounds of updates (H in the paper's Algorithms 1 and 2)."""
    updates_per_round: int = 1
    """Updates per round (1 in the paper's Algorithm 2, m in Algorithm 1)."""


@dataclass(frozen=True)
class Recording:
    """What is evaluated, measured and saved during training."""

    evaluation_episodes: int = 10
    """Deterministic test episodes per member and evaluation, on separate environments."""
    longest_evaluation: int = 10_000
    """Maximum number of steps per test episode; longer ones are cut off there."""
    log_every: int = 1000
    """Environment steps between two rows of losses and weights in metrics.csv."""
    checkpoint_every: int | None = None
    """Environment steps between two checkpoints; None is a third of env_steps, at most 50,000. One is also written at
    the end and on interruption."""
    measured_slots: int = 10_000
    """Slots per measurement of the variance, chosen uniformly."""
    trace_every: int | None = None
    """Environment steps between two recordings of the gradient norms of the first member's slots; the laboratory
    simulates samplers on them. None for never."""
    trace_burst: int = 1
    """Recordings at a time: with more than one, each is followed by others, `trace_burst_every` steps apart. A
    simulated sampler then meets changes of the norms that are faster than `trace_every`."""
    trace_burst_every: int = 200
    """Environment steps between the recordings of a burst."""
    traced_slots: int = 8192
    """Slots of a full buffer in such a recording."""
    tensorboard: bool = False
    """Whether to write TensorBoard files too; needs the extra tensorboard."""


@dataclass(frozen=True)
class Resources:
    """What the run uses of the machine; none of these but tf32 changes the results."""

    workers: int | None = None
    """Processes that step environments; 0 steps them in the learner's process, which is the default for up to two
    members."""
    evaluation_workers: int | None = None
    """Processes that run test episodes; 0 runs them in the learner's process. With a GPU, training continues meanwhile
    and has priority; the default is then all cores but two, and on the CPU as many as `workers`."""
    tf32: bool = False
    """Whether a GPU may round the inputs of matrix products to TensorFloat-32 (10-bit mantissa): faster, less exact."""
