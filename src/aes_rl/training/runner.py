"""Runs a training from its start or checkpoint to its end: evaluation, tables, checkpoints and interruption."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from typing_extensions import override

from aes_rl import extensions, files
from aes_rl.errors import RunError, UserError
from aes_rl.lab import recorded
from aes_rl.lab.measure import measure
from aes_rl.machine import cores, on_signals
from aes_rl.training import checkpoint, run_files
from aes_rl.training.config import Training
from aes_rl.training.episode_worker import SchedulingPriority
from aes_rl.training.evaluation import Evaluator, Score
from aes_rl.training.loop import Step, train
from aes_rl.training.state import Learned, RunState, workers_for
from aes_rl.training.vector import simulator

EVALUATION_COLUMNS = (
    "env_step",
    "update_step",
    "sampler",
    "seed",
    "mean_return",
    "standard_deviation",
    "lowest_return",
    "highest_return",
    "mean_length",
)
METRIC_COLUMNS = ("env_step", "update_step", "sampler", "seed", "metric", "value")
_EVALUATION_POLL_STEPS = 100
"""Environment steps between two checks whether the running evaluation has ended."""


class Interrupted(Exception):
    """The run was stopped by a signal; its checkpoint is written."""

    def __init__(self, number: int):
        """By the signal of that number."""
        super().__init__(number)
        self.exit_code = 128 + number
        """Exit code that a shell expects of a process ended by the signal."""

    @override
    def __str__(self) -> str:
        return f"stopped by signal {self.args[0]}"


class Runner:
    """One run in one directory. Iterate over `steps` to train; it yields after every step."""

    def __init__(self, config: Training, directory: Path, lock_timeout: float = 10.0):
        """Start the run, or continue it from its newest checkpoint; a larger env_steps extends it.

        If another process trains in the directory, wait at most `lock_timeout` seconds for it to leave.
        """
        if config.tensorboard:
            extensions.require_extra("tensorboard", "tensorboard")
        config = _settled(directory, config)  # raises before anything is written there
        config.require_learning()
        simulator.make(config.task).close()  # raises if there is no such task
        self.config, self.directory = config, directory
        self._evaluator: Evaluator | None = None
        self._evaluation_steps: tuple[int, int] | None = None
        """Environment and update step of the running evaluation, if there is one."""
        self._learned: Learned | None = None
        """The last update, if its metrics are not in the state yet."""
        self._stop_signal: int | None = None
        """The signal that asked the run to stop after the current step."""
        with ExitStack() as opened:
            opened.enter_context(run_files.exclusive_use(directory, lock_timeout))
            _settled(directory, config)  # another process may have written there meanwhile
            self.state = RunState(config)
            opened.callback(self.state.close)
            self._trains_during_evaluation = self.state.device.type == "cuda"
            run_files.write_config(directory, config)
            self._checkpoints = directory / "checkpoint"
            sizes: dict[str, int | None] = {"evaluations": None, "metrics": None}
            self.was_resumed = checkpoint.exists(self._checkpoints)
            if self.was_resumed:
                sizes |= checkpoint.load(self.state, self._checkpoints, renames_damaged=True)
            self.first_step = self.state.env_step
            if self.first_step < config.env_steps:
                run_files.reopen(directory)
            self._tables = {}
            for name, columns in (("evaluations", EVALUATION_COLUMNS), ("metrics", METRIC_COLUMNS)):
                self._tables[name] = run_files.Table(directory / f"{name}.csv", columns, sizes[name])
                opened.callback(self._tables[name].close)
            self.scored_step, self.scores = self._scores_so_far()
            """Environment step of the newest finished evaluation, and every member's mean return in it."""
            self._tensorboard = _open_tensorboard(directory, self.first_step) if config.tensorboard else None
            if self._tensorboard is not None:
                opened.callback(self._tensorboard.close)
            self._opened = opened.pop_all()

    def steps(self) -> Iterator[Step]:
        """Train to the end; on SIGINT or SIGTERM finish the step, save, and raise Interrupted."""
        state = self.state
        started = time.monotonic() - state.seconds
        with on_signals(self._request_stop):
            for step in train(state):
                state.seconds = time.monotonic() - started
                with state.numerics:
                    is_saved = self._after_step(step)
                yield step
                if self._stop_signal is not None:
                    if not is_saved:  # the signal arrived after `_after_step`
                        self.save()
                    raise Interrupted(self._stop_signal)
        if not run_files.is_finished(self.directory):
            run_files.write_manifest(self.directory, self.config, state.seconds)

    def save(self) -> None:
        """Write a checkpoint, after the running evaluation has ended and is in the table."""
        self._update_metrics()
        self._finish_evaluation()
        checkpoint.save(self.state, self._checkpoints, {name: table.size() for name, table in self._tables.items()})

    def mean_scores(self) -> dict[str, float]:
        """Mean return of every sampler in the newest evaluation, averaged over seeds."""
        by_sampler: dict[str, list[float]] = {}
        for (sampler, _), score in self.scores.items():
            by_sampler.setdefault(sampler, []).append(score)
        return {sampler: float(np.mean(scores)) for sampler, scores in by_sampler.items()}

    def close(self) -> None:
        """Close environments and files."""
        self._opened.close()

    def _after_step(self, step: Step) -> bool:
        """Log, measure, evaluate and save if due; returns whether a checkpoint was written."""
        config, state = self.config, self.state
        is_last = step.env_step == config.env_steps
        for member in step.ended.nonzero().flatten().tolist():
            state.returns[member].append(step.episode_return[member].item())
        if step.learned is not None:
            self._learned = step.learned
        if step.env_step % config.log_every == 0:
            self._log()
        if config.measure_variance_every and step.env_step % config.measure_variance_every == 0:
            self._measure()
        if _is_traced(config, step.env_step):
            self._update_metrics()  # recording computes gradients in the memory of the last update
            recorded.record_moment(state.agent, state.replay, _trace_facts(config), self.directory / "trace")
        if step.env_step % config.evaluation_interval == 0 or is_last:
            self._start_evaluation()
        self._poll_evaluation(is_last)
        is_saved = self._stop_signal is not None or is_last or step.env_step % config.checkpoint_interval == 0
        if is_saved:
            self.save()
        return is_saved

    def _start_evaluation(self) -> None:
        """Start test episodes; on a GPU training continues meanwhile."""
        state = self.state
        state.replay.check()
        self._finish_evaluation()
        evaluation = -(-state.env_step // self.config.evaluation_interval)  # rounded up: the last may come early
        seeds = state.evaluation_seeds(evaluation, self.config.evaluation_episodes)
        if self._evaluator is None:
            workers = self._evaluation_workers(np.size(seeds))
            self._evaluator = Evaluator(
                self.config.task, *np.shape(seeds), workers, self._evaluation_priority(), self.config.longest_evaluation
            )
            self._opened.callback(self._evaluator.close)
        self._evaluator.start(state.agent, seeds)
        self._evaluation_steps = (state.env_step, state.update_step)

    def _scores_so_far(self) -> tuple[int, dict[tuple[str, int], float]]:
        return run_files.newest_scores(self.directory / "evaluations.csv") if self.was_resumed else (0, {})

    def _evaluation_priority(self) -> SchedulingPriority:
        """Training has priority while it continues, but if it uses every core, evaluation still gets a share."""
        if not self._trains_during_evaluation:
            return "normal"
        return "idle" if self.state.workers + 1 < cores() else "nice"

    def _evaluation_workers(self, episodes: int) -> int:
        state, config = self.state, self.config
        if config.evaluation_workers is not None:
            return config.evaluation_workers
        if state.workers == 0:
            return 0
        if self._trains_during_evaluation:
            return min(episodes, max(2, cores() - 2))  # as many as cores: training has priority over them
        return workers_for(episodes, config.task) if config.workers is None else state.workers

    def _poll_evaluation(self, is_last: bool) -> None:
        if self._evaluation_steps is None or self._evaluator is None:
            return
        is_due = self.state.env_step % _EVALUATION_POLL_STEPS == 0
        if is_last or not self._trains_during_evaluation or (is_due and self._evaluator.is_done()):
            self._finish_evaluation()

    def _finish_evaluation(self) -> None:
        if self._evaluation_steps is None or self._evaluator is None:
            return
        score = self._evaluator.finish()
        steps, self._evaluation_steps = self._evaluation_steps, None
        self._tables["evaluations"].add(_evaluation_rows(steps, self.config.members, score))
        self.scored_step = steps[0]
        for member, returns in zip(self.config.members, score.returns, strict=True):
            self.scores[member] = float(returns.mean())
            self._to_tensorboard(member, "evaluation_return", self.scores[member], steps[0])

    def _log(self) -> None:
        self.state.replay.check()
        of_update = self._update_metrics()
        rows = []
        for number, member in enumerate(self.config.members):
            metrics: dict[str, float] = {}
            if self.state.returns[number]:
                metrics["training_return"] = float(np.mean(self.state.returns[number]))
            metrics |= of_update[number]
            for name, value in metrics.items():
                rows.append((self.state.env_step, self.state.update_step, *member, name, value))
                self._to_tensorboard(member, name, value)
        self._tables["metrics"].add(rows)
        self.state.returns = [[] for _ in self.config.members]

    def _update_metrics(self) -> list[dict[str, float]]:
        """Metrics of the last update per member, also kept in the state; raises if a member has diverged."""
        if self._learned is None:
            return self.state.update_metrics
        found, self._learned = _metrics_of(self._learned), None
        for (sampler, seed), metrics in zip(self.config.members, found, strict=True):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    raise RunError(
                        f"{name} of {sampler}, seed {seed} is {value} at step {self.state.env_step:,}: it has "
                        "diverged. Look at the size of the rewards and at the learning rate; the last checkpoint is "
                        "intact"
                    )
        self.state.update_metrics = found
        return found

    def _measure(self) -> None:
        self._update_metrics()  # measuring computes gradients in the memory of the last update
        state, config = self.state, self.config
        batch_size = config.agent_config.batch_size
        readings = measure(state.agent, state.replay, batch_size, config.measured_slots, seed=state.env_step)
        rows = []
        for member, reading in zip(config.members, readings, strict=True):
            values = {name: value for name, value in asdict(reading).items() if name != "by_network"}
            values |= {f"captured_fraction_{name}": value for name, value in reading.by_network.items()}
            for name, value in values.items():
                rows.append((state.env_step, state.update_step, *member, name, value))
                self._to_tensorboard(member, name, value)
        self._tables["metrics"].add(rows)

    def _to_tensorboard(self, member: tuple[str, int], name: str, value: float, env_step: int | None = None) -> None:
        if self._tensorboard is not None:
            sampler, seed = member
            self._tensorboard.add_scalar(f"{name}/{sampler}-{seed}", value, env_step or self.state.env_step)

    def _request_stop(self, number: int) -> None:
        self._stop_signal = number


def _settled(directory: Path, config: Training) -> Training:
    """The configuration to train with; raises if the directory has another run, or its run cannot be continued."""
    config = run_files.settled(directory, config, may_extend=True)
    if run_files.is_finished(directory) and not checkpoint.exists(directory / "checkpoint"):
        raise UserError(f"{directory} holds a finished run and no checkpoint; choose another directory")
    return config


def _metrics_of(learned: Learned) -> list[dict[str, float]]:
    """Losses and extreme weights, the actor's included, per member; one transfer from the device per name."""
    sample = learned.sample
    weights = sample.weights if sample.actor is None else torch.cat([sample.weights, sample.actor.weights], dim=1)
    extremes = {"smallest_weight": weights.amin(dim=1), "largest_weight": weights.amax(dim=1)}
    values = {name: own.tolist() for name, own in {**learned.update.losses, **extremes}.items()}
    return [{name: own[member] for name, own in values.items()} for member in range(len(weights))]


def _evaluation_rows(steps: tuple[int, int], members: list[tuple[str, int]], score: Score) -> list[tuple[object, ...]]:
    return [
        (
            *steps,
            *member,
            float(returns.mean()),
            float(returns.std(ddof=1)) if len(returns) > 1 else 0.0,
            float(returns.min()),
            float(returns.max()),
            float(lengths.mean()),
        )
        for member, returns, lengths in zip(members, score.returns, score.lengths, strict=True)
    ]


def _is_traced(config: Training, env_step: int) -> bool:
    """Whether the norms are recorded after this step."""
    if config.trace_every is None or env_step < config.trace_every:
        return False
    number, rest = divmod(env_step % config.trace_every, config.trace_burst_every)
    return rest == 0 and number < config.trace_burst


def _trace_facts(config: Training) -> recorded.Facts:
    return recorded.Facts(
        task=config.task,
        agent=config.agent,
        seed=config.seeds[0],
        capacity=config.capacity,
        batch_size=config.agent_config.batch_size,
        warm_up_steps=config.warm_up_steps,
        thinning=max(1, config.capacity // config.traced_slots),
    )


def _open_tensorboard(directory: Path, first_step: int) -> "torch.utils.tensorboard.SummaryWriter":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(f"TensorBoard cannot be imported ({error}); pip install 'aes-rl[tensorboard]'") from error
    files.require_directory(directory / "tensorboard")
    # What a killed run wrote after its last checkpoint is dropped, as from the tables.
    return SummaryWriter(str(directory / "tensorboard"), purge_step=first_step + 1 if first_step else None)
