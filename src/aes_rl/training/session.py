"""A run from start or checkpoint to its end: evaluation, tables, checkpoints, progress and interruption."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from typing_extensions import override

from aes_rl import files
from aes_rl.errors import RunError, UserError
from aes_rl.lab import recorded
from aes_rl.lab.measure import measure
from aes_rl.machine import cores, on_signals
from aes_rl.training import checkpoint, record, simulator
from aes_rl.training.config import Training
from aes_rl.training.evaluation import Evaluator, Score
from aes_rl.training.loop import Step, train
from aes_rl.training.player import Standing
from aes_rl.training.run import Learned, Run, workers_for

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
_STEPS_A_LOOK = 100
"""Environment steps between two looks whether an evaluation has been played."""


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is written."""

    def __init__(self, number: int):
        """By which signal."""
        super().__init__(number)
        self.exit_code = 128 + number
        """What a shell expects of a process that a signal has ended."""

    @override
    def __str__(self) -> str:
        return f"stopped by signal {self.args[0]}"


class Session:
    """One run in one directory. `steps` drives it; whoever consumes it sees every step."""

    def __init__(self, config: Training, directory: Path, patience: float = 10.0):
        """Start the run, or continue it from its newest checkpoint; wait so many seconds for another process's end."""
        config.require_learning()
        _require_own(directory, config)  # before anything is written there
        simulator.make(config.task).close()  # raises where there is no such task
        self.config, self.directory = config, directory
        self._evaluator: Evaluator | None = None
        self._evaluating: tuple[int, int] | None = None
        """Environment and update step of the evaluation under way."""
        self._stop_signal: int | None = None
        """Asks for an end after the step."""
        with ExitStack() as opened:
            opened.enter_context(record.alone_in(directory, patience))
            _require_own(directory, config)  # another process may have been there meanwhile
            self.run = Run(config)
            opened.callback(self.run.close)
            self._plays_beside = self.run.device.type == "cuda"
            """Whether training goes on while test episodes are played."""
            record.write_config(directory, config)
            self._checkpoints = directory / "checkpoint"
            sizes: dict[str, int | None] = {"evaluations": None, "metrics": None}
            self.was_resumed = checkpoint.exists(self._checkpoints)
            if self.was_resumed:
                sizes |= checkpoint.load(self.run, self._checkpoints, sets_aside=True)
            self.first_step = self.run.env_step
            self._tables = {}
            for name, columns in (("evaluations", EVALUATION_COLUMNS), ("metrics", METRIC_COLUMNS)):
                self._tables[name] = record.Table(directory / f"{name}.csv", columns, sizes[name])
                opened.callback(self._tables[name].close)
            self.scored_step, self.scores = self._scores_so_far()
            """The environment step of the newest finished evaluation, and every member's mean return in it."""
            self._board = _tensorboard(directory) if config.tensorboard else None
            if self._board is not None:
                opened.callback(self._board.close)
            self._opened = opened.pop_all()

    def steps(self) -> Iterator[Step]:
        """Train to the end; on SIGINT or SIGTERM finish the step, save, and raise Interrupted."""
        config, run = self.config, self.run
        started = time.monotonic() - run.seconds
        with on_signals(self._request_stop):
            for step in train(run):
                run.seconds = time.monotonic() - started
                with run.numerics:
                    is_saved = self._look_after(step)
                yield step
                if self._stop_signal is not None:
                    if not is_saved:  # asked since
                        self.save()
                    raise Interrupted(self._stop_signal)
        if not record.is_finished(self.directory):
            record.write_manifest(self.directory, config, run.seconds)

    def _look_after(self, step: Step) -> bool:
        """What is due after a step: rows, measurements, evaluations, a checkpoint; whether one was written."""
        config, run = self.config, self.run
        is_last = step.env_step == config.env_steps
        self._remember(step)
        if step.env_step % config.log_every == 0:
            self._log(step)
        elif is_last:
            self._require_finite_losses(step)
        if config.measure_variance_every and step.env_step % config.measure_variance_every == 0:
            self._measure()
        if config.trace_every and step.env_step % config.trace_every == 0:
            recorded.record_moment(run.agent, run.replay, _facts(config), self.directory / "trace")
        if step.env_step % config.evaluate_every == 0 or is_last:
            self._evaluate()
        self._look_after_evaluation(is_last)
        is_saved = self._stop_signal is not None or is_last or step.env_step % config.checkpoint_every == 0
        if is_saved:
            self.save()
        return is_saved

    def save(self) -> None:
        """Write a checkpoint, with the evaluation that is under way in the table."""
        self._finish_evaluation()
        checkpoint.save(self.run, self._checkpoints, {name: table.size() for name, table in self._tables.items()})

    def mean_scores(self) -> dict[str, float]:
        """The newest evaluation of every sampler, averaged over seeds."""
        by_sampler: dict[str, list[float]] = {}
        for (sampler, _), score in self.scores.items():
            by_sampler.setdefault(sampler, []).append(score)
        return {sampler: float(np.mean(scores)) for sampler, scores in by_sampler.items()}

    def close(self) -> None:
        """End environments and close files."""
        self._opened.close()

    def _remember(self, step: Step) -> None:
        for member in step.ended.nonzero().flatten().tolist():
            self.run.returns[member].append(step.episode_return[member].item())

    def _evaluate(self) -> None:
        """Start to play test episodes; beside a GPU the training goes on meanwhile."""
        run = self.run
        run.replay.check()
        self._finish_evaluation()
        evaluation = -(-run.env_step // self.config.evaluate_every)  # the last one of a run may be early
        seeds = run.evaluation_seeds(evaluation, self.config.evaluation_episodes)
        if self._evaluator is None:
            workers = self._evaluation_workers(np.size(seeds))
            self._evaluator = Evaluator(
                self.config.task, *np.shape(seeds), workers, self._standing(), self.config.longest_evaluation
            )
            self._opened.callback(self._evaluator.close)
        self._evaluator.start(run.agent, seeds)
        self._evaluating = (run.env_step, run.update_step)

    def _scores_so_far(self) -> tuple[int, dict[tuple[str, int], float]]:
        return record.newest_scores(self.directory / "evaluations.csv") if self.was_resumed else (0, {})

    def _standing(self) -> Standing:
        """Training comes first where it goes on meanwhile, but where it takes every core, players get a share."""
        if not self._plays_beside:
            return "equal"
        return "idle" if self.run.workers + 1 < cores() else "nice"

    def _evaluation_workers(self, episodes: int) -> int:
        run, config = self.run, self.config
        if config.evaluation_workers is not None:
            return config.evaluation_workers
        if run.workers == 0:
            return 0
        if self._plays_beside:
            return min(episodes, max(2, cores() - 2))  # they stand back for who trains
        return workers_for(episodes, config.task) if config.workers is None else run.workers

    def _look_after_evaluation(self, is_last: bool) -> None:
        if self._evaluating is None or self._evaluator is None:
            return
        if is_last or not self._plays_beside or (self.run.env_step % _STEPS_A_LOOK == 0 and self._evaluator.is_done()):
            self._finish_evaluation()

    def _finish_evaluation(self) -> None:
        if self._evaluating is None or self._evaluator is None:
            return
        score = self._evaluator.finish()
        steps, self._evaluating = self._evaluating, None
        self._tables["evaluations"].add(_rows(steps, self.config.members, score))
        self.scored_step = steps[0]
        for member, returns in zip(self.config.members, score.returns, strict=True):
            self.scores[member] = float(returns.mean())
            self._to_board(member, "evaluation_return", self.scores[member], steps[0])

    def _log(self, step: Step) -> None:
        self.run.replay.check()
        learned = self._require_finite_losses(step)
        rows = []
        for number, member in enumerate(self.config.members):
            metrics: dict[str, float] = {}
            if self.run.returns[number]:
                metrics["training_return"] = float(np.mean(self.run.returns[number]))
            metrics |= {name: values[number] for name, values in learned.items()}
            for name, value in metrics.items():
                rows.append((self.run.env_step, self.run.update_step, *member, name, value))
                self._to_board(member, name, value)
        self._tables["metrics"].add(rows)
        self.run.returns = [[] for _ in self.config.members]

    def _require_finite_losses(self, step: Step) -> dict[str, list[float]]:
        """What the last update says of every member; raises where one has diverged."""
        learned = {} if step.learned is None else _numbers(step.learned)
        for name, values in learned.items():
            for (sampler, seed), value in zip(self.config.members, values, strict=True):
                if not math.isfinite(value):
                    raise RunError(
                        f"{name} of {sampler}, seed {seed} is {value} at step {step.env_step:,}: it has diverged. Look "
                        f"at the size of the rewards and at the learning rate; the last checkpoint is intact"
                    )
        return learned

    def _measure(self) -> None:
        run, config = self.run, self.config
        batch_size = config.agent_config.batch_size
        readings = measure(run.agent, run.replay, batch_size, config.measured_slots, seed=run.env_step)
        rows = []
        for member, reading in zip(config.members, readings, strict=True):
            values = {name: value for name, value in asdict(reading).items() if name != "by_network"}
            values |= {f"captured_fraction_{name}": value for name, value in reading.by_network.items()}
            for name, value in values.items():
                rows.append((run.env_step, run.update_step, *member, name, value))
                self._to_board(member, name, value)
        self._tables["metrics"].add(rows)

    def _to_board(self, member: tuple[str, int], name: str, value: float, env_step: int | None = None) -> None:
        if self._board is not None:
            sampler, seed = member
            self._board.add_scalar(f"{name}/{sampler}-{seed}", value, env_step or self.run.env_step)

    def _request_stop(self, number: int) -> None:
        self._stop_signal = number


def _require_own(directory: Path, config: Training) -> None:
    """Raise where the directory is another run's, or its run cannot be continued."""
    record.check_directory(directory, config)
    if record.is_finished(directory) and not checkpoint.exists(directory / "checkpoint"):
        raise UserError(f"{directory} holds a finished run and no checkpoint; choose another directory")


def _numbers(learned: Learned) -> dict[str, list[float]]:
    """What an update says of every member, brought over from the device a quantity at a time."""
    weights = learned.sample.weights
    extremes = {"smallest_weight": weights.amin(dim=1), "largest_weight": weights.amax(dim=1)}
    return {name: values.tolist() for name, values in {**learned.update.losses, **extremes}.items()}


def _rows(steps: tuple[int, int], members: list[tuple[str, int]], score: Score) -> list[tuple[object, ...]]:
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


def _facts(config: Training) -> recorded.Facts:
    return recorded.Facts(
        task=config.task,
        agent=config.agent,
        seed=config.seeds[0],
        capacity=config.capacity,
        batch_size=config.agent_config.batch_size,
        warm_up_steps=config.warm_up_steps,
        thinning=max(1, config.capacity // config.traced_slots),
    )


def _tensorboard(directory: Path) -> "torch.utils.tensorboard.SummaryWriter":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard is not installed; pip install 'aes-rl[tensorboard]'") from error
    files.require_directory(directory / "tensorboard")
    return SummaryWriter(str(directory / "tensorboard"))
