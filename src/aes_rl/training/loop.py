"""The loop, in the order of one step: act → send → sample → update → feedback → receive → add → advance."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.agents import Update
from aes_rl.replay import Sample
from aes_rl.streams import Stream
from aes_rl.training.run import Run
from aes_rl.types import Transition


class Step(NamedTuple):
    """What happened in one environment step of every member."""

    env_step: int
    ended: Float[Tensor, "P"]
    """1 where an episode ended."""
    episode_return: Float[Tensor, "P"]
    """Its return, where one ended."""
    update: Update | None
    """The last update made during this step, if any was."""
    sample: Sample | None
    """What it trained on."""


def train(run: Run) -> Iterator[Step]:
    """Take environment steps and updates until the configured end, yielding after each step.

    Environments step while the learner updates. Logging, evaluation, checkpoints and limits belong to the caller: all
    that a step needs is in `run`, so the caller may stop, save, and go on with a new loop.
    """
    config = run.config
    while run.env_step < config.env_steps:
        observation, action = run.observation(), run.act()
        run.environments.send(action.cpu().numpy())
        update, sample = None, None
        for number in range(updates_due(run)):
            if number:
                run.replay.advance(run.update_step)
            sample = run.replay.sample(config.agent_config.batch_size)
            update = learn(run, sample)
            run.replay.feedback(sample.draw, update.signals)
            run.update_step += 1
        board = run.environments.receive()
        reward, after, terminated, ended, episode_return = (
            torch.from_numpy(field.copy()).to(config.device)
            for field in (board.reward, board.next_observation, board.terminated, board.ended, board.episode_return)
        )
        run.replay.add(Transition(observation, action, reward, after, terminated))
        if update is not None:
            run.replay.advance(run.update_step)
        run.agent.end_episode(ended)
        run.env_step += 1
        yield Step(run.env_step, ended, episode_return, update, sample)


def updates_due(run: Run) -> int:
    """Updates to make during this environment step."""
    since_warm_up = run.env_step - run.config.agent_config.warm_up_steps
    if since_warm_up < 0 or since_warm_up % run.config.steps_per_round:
        return 0
    return run.config.updates_per_round


def learn(run: Run, sample: Sample) -> Update:
    """One update of every member on its batch."""
    count = run.agent.noise_size(run.config.agent_config.batch_size)
    noise = run.streams.normal(Stream.UPDATE, run.streams.counter(run.update_step), count)
    return run.agent.update(sample.batch, sample.weights, noise, run.replay.sampler.needs)
