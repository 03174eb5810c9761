"""The loop, in the order of one step: act → send → sample → update → feedback → receive → add → advance."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.streams import Stream
from aes_rl.training.capture import Captured
from aes_rl.training.run import Learned, Run
from aes_rl.types import Transition, as_tensor


class Step(NamedTuple):
    """What happened in one environment step of every member."""

    env_step: int
    ended: Float[Tensor, "P"]
    """1 where an episode ended."""
    episode_return: Float[Tensor, "P"]
    """Its return, where one ended."""
    learned: Learned | None
    """The last update made during this step, if any was. On a GPU the next step overwrites it."""


def train(run: Run) -> Iterator[Step]:
    """Take environment steps and updates until the configured end, yielding after each step.

    Environments step while the learner updates. A GPU is given a batch to learn from before the actions are fetched
    from it, so that it never waits for this process, and the rest of the update once they are on their way; its
    samplers hear and store beside its optimiser's step. Logging, evaluation, checkpoints and limits belong to the
    caller: all that a step needs is in `run`, so the caller may stop, save, and go on with a new loop.
    """
    config = run.config
    stages = (explore, learn, feed_back, descend, store)
    explore_all, learn_all, feed_back_all, descend_all, store_all = (
        Captured(partial(f, run), run.device) for f in stages
    )
    while run.env_step < config.env_steps:
        with run.numerics:
            if run.env_step < config.warm_up_steps:
                warm_up(run)
            else:
                explore_all()
            run.begin_sending()
            run.learned = None
            for number in range(updates_due(run)):
                if number:
                    run.aside.join()
                    run.replay.advance(run.update_step)
                run.learned = learn_all()
                run.finish_sending()
                with run.aside:
                    if run.replay.is_listening:
                        feed_back_all()
                descend_all()
                run.update_step += 1
            run.finish_sending()
            with run.aside:
                board = run.receive()
                store_all()
            run.aside.join()
            if run.learned is not None:
                run.replay.advance(run.update_step)
            run.env_step += 1
        yield Step(run.env_step, torch.tensor(board.ended), torch.tensor(board.episode_return), run.learned)


def warm_up(run: Run) -> None:
    """Uniform actions, before the first update."""
    uniforms = run.streams.uniform(Stream.WARM_UP, run.replay.insertions, run.sizes.action)
    run.action.copy_(2 * as_tensor(uniforms) - 1)


def explore(run: Run) -> None:
    """Every member's exploring action."""
    noise = run.streams.normal(Stream.EXPLORE, run.replay.insertions, run.sizes.action)
    run.action.copy_(run.agent.act(run.observation, noise))


def updates_due(run: Run) -> int:
    """Updates to make during this environment step."""
    since_warm_up = run.env_step - run.config.warm_up_steps
    if since_warm_up < 0 or since_warm_up % run.config.steps_per_round:
        return 0
    return run.config.updates_per_round


def learn(run: Run) -> Learned:
    """A batch for every member, and the gradients on it."""
    batch_size = run.config.agent_config.batch_size
    clock = run.replay.draws + 0  # sampling moves the clock itself
    with run.aside:
        noise = run.streams.normal(Stream.UPDATE, clock, run.agent.noise_size(batch_size))
    sample = run.replay.sample(batch_size)
    run.aside.join()
    update = run.agent.differentiate(sample.batch, sample.weights, noise, run.replay.sampler.norm_members)
    return Learned(update, sample)


def feed_back(run: Run) -> None:
    """Tell every member's sampler what the gradients say."""
    assert run.learned is not None
    run.replay.feedback(run.learned.sample.draw, run.learned.update.signals)


def descend(run: Run) -> None:
    """One step of every member along its gradients."""
    run.agent.descend()


def store(run: Run) -> None:
    """Add every member's transition, and look at what came of it."""
    seen = run.seen
    run.replay.add(Transition(run.observation, run.action, seen.reward, seen.next_observation, seen.terminated))
    run.agent.end_episode(seen.ended)
    run.observation.copy_(seen.observation)
