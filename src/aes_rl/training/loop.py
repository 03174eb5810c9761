"""The training loop; one step is: act → send → sample → update → feedback → receive → add → advance."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aes_rl.streams import Stream
from aes_rl.training.capture import captured
from aes_rl.training.state import Learned, RunState
from aes_rl.types import Batch, Counter, Transition, as_tensor


class Step(NamedTuple):
    """What happened in one environment step of every member."""

    env_step: int
    ended: Float[Tensor, "P"]
    """1 where an episode ended."""
    episode_return: Float[Tensor, "P"]
    """Its return, where one ended."""
    learned: Learned | None
    """The last update made during this step, if any was. On a GPU the next step overwrites it."""


def train(run: RunState) -> Iterator[Step]:
    """Take environment steps and updates until the configured end, yielding after each step.

    Environments step while the learner updates. A GPU computes actions and gradients at the same time; it gets both
    before the actions are fetched from it, so that it never waits for this process, and the optimiser's step once they
    have been sent. Feedback and insertion run beside the optimiser's step. Logging, evaluation, checkpoints and limits
    belong to the caller: all state is in `run`, so the caller may stop, save, and continue with a new loop.
    """
    config, side_stream, acting_stream = run.config, run.side_stream, run.acting_stream
    learned: Learned | None = None

    def feed_back_learned() -> None:
        assert learned is not None
        feed_back(run, learned)

    explore_all = captured(partial(explore, run), run.device)
    learn_all = captured(partial(learn, run), run.device)
    feed_back_all = captured(feed_back_learned, run.device)
    descend_all = captured(run.agent.descend, run.device)
    store_all = captured(partial(store, run), run.device)
    while run.env_step < config.env_steps:
        with run.numerics:
            with acting_stream:
                if run.env_step < run.warm_up_steps:
                    warm_up(run)
                else:
                    explore_all()
                run.begin_sending()
            learned = None
            for number in range(updates_due(run)):
                if number:
                    side_stream.join()
                    run.replay.advance(run.update_step)
                learned = learn_all()
                run.finish_sending()
                with side_stream:
                    if run.replay.is_listening:
                        feed_back_all()
                descend_all()
                run.update_step += 1
            run.finish_sending()
            with side_stream:
                data = run.receive()
                store_all()
            side_stream.join()
            if learned is not None:
                run.replay.advance(run.update_step)
            run.env_step += 1
        yield Step(run.env_step, torch.tensor(data.ended), torch.tensor(data.episode_return), learned)


def warm_up(run: RunState) -> None:
    """Uniform actions, before the first update."""
    uniforms = run.streams.uniform(Stream.WARM_UP, run.replay.insertions, run.sizes.action)
    run.action.copy_(2 * as_tensor(uniforms) - 1)


def explore(run: RunState) -> None:
    """Exploring actions of every member."""
    noise = run.streams.normal(Stream.EXPLORE, run.replay.insertions, run.sizes.action)
    run.action.copy_(run.agent.act(run.observation, noise))


def updates_due(run: RunState) -> int:
    """Number of updates to make during this environment step."""
    since_warm_up = run.env_step - run.warm_up_steps
    if since_warm_up < 0 or since_warm_up % run.config.steps_per_round:
        return 0
    return run.config.updates_per_round


def learn(run: RunState) -> Learned:
    """Draw a batch for every member and compute the gradients on it."""
    clock = run.replay.draws + 0  # a copy: sampling advances the clock in place
    with run.side_stream:
        noise = run.streams.normal(Stream.UPDATE, clock, run.noise_size)
    sample = run.replay.sample(run.batch_size, partial(td_errors_of_candidates, run, clock))
    run.side_stream.join()
    update = run.agent.differentiate(sample.batch, sample.weights, noise, run.replay.norm_members, sample.actor)
    return Learned(update, sample)


def td_errors_of_candidates(run: RunState, clock: Counter, candidates: Batch) -> Float[Tensor, "P C"]:
    """Absolute TD errors of the transitions that a sampler chooses among."""
    noise = run.streams.normal(Stream.CANDIDATES, clock, run.agent.noise_size(candidates.reward.shape[1]))
    return run.agent.td_errors(candidates, noise)


def feed_back(run: RunState, learned: Learned) -> None:
    """Report the signals of an update to every member's sampler."""
    run.replay.feedback(learned.sample.draw, learned.update.signals)


def store(run: RunState) -> None:
    """Add every member's transition, and take over the next observations."""
    data = run.received
    run.replay.add(Transition(run.observation, run.action, data.reward, data.next_observation, data.terminated))
    run.agent.end_episode(data.ended)
    run.observation.copy_(data.observation)
