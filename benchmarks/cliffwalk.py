"""Blind Cliffwalk (Schaul et al. 2016, section 3.1): updates until the values are known, by sampler.

In a chain of n states one of two actions leads on, the other ends the episode without a reward; the last state pays 1.
The buffer holds the transitions of all 2^n sequences of actions in random order, so one in 2^(n+1) − 2 has a reward. A
table of values is trained by gradient steps on the mean Huber loss of batches of 16, until its mean squared error is
below 1e-3. The step size is that of one sample in a batch: 0.25 is the paper's, where a batch is one sample.

Large steps show what unbiased weights cost: a state whose transitions are forecast to have small gradients is drawn
seldom, with weights up to 1/κ, and such a step overshoots if it is larger than the error that it corrects.
"""

import argparse
import itertools
import statistics

import numpy as np
import torch

from aes_rl import Adaptive, Predictive, Prioritized, Sampler, Signals, Uniform
from aes_rl.samplers.rule import SamplerConfig
from aes_rl.streams import Stream, Streams
from aes_rl.types import as_tensor

BATCH, CHECK_EVERY, SOLVED = 16, 20, 1e-3
SAMPLERS: dict[str, SamplerConfig] = {
    "uniform": Uniform(),
    "prioritized": Prioritized(),
    "adaptive": Adaptive(),
    "predictive": Predictive(),
}


def transitions(length: int, generator: np.random.Generator) -> list[np.ndarray]:
    """State, action, reward, end and next state of all sequences, shuffled, and the action that leads on from each."""
    right = np.arange(length) % 2
    rows = []
    for actions in itertools.product((0, 1), repeat=length):
        for state, action in enumerate(actions):
            leads_on, is_last = action == right[state], state == length - 1
            rows.append((state, action, leads_on and is_last, is_last or not leads_on, min(state + 1, length - 1)))
            if not leads_on:
                break
    table = np.array(rows, dtype=int)
    generator.shuffle(table)
    return [*table.T, right]


def updates_needed(config: SamplerConfig, length: int, step_size: float, seed: int, most: int = 60_000) -> int:
    """Updates until the mean squared error of the values is below `SOLVED`; `most` if it never is."""
    generator = np.random.default_rng(seed)
    states, actions, rewards, ends, following, right = transitions(length, generator)
    gamma, number = 1 - 1 / length, len(states)
    values, wanted = generator.normal(0, 0.01, (length, 2)), np.zeros((length, 2))
    wanted[np.arange(length), right] = gamma ** (length - 1 - np.arange(length))
    sampler = Sampler([config], capacity=number, total_updates=most)
    streams = Streams([seed], sampler.backend)
    for _ in range(2):
        sampler.place(streams.uniform(Stream.PLACE, sampler.distribution.clock, number))
    for update in range(1, most + 1):
        draw = sampler.draw(streams.uniform(Stream.DRAW, streams.counter(update - 1), BATCH))
        weights, slots = sampler.weights(draw)[0].numpy(), as_tensor(draw.slots_view)[0].numpy()
        at = states[slots], actions[slots]
        error = rewards[slots] + gamma * (1 - ends[slots]) * values[following[slots]].max(axis=1) - values[at]
        gradient = torch.from_numpy(error.clip(-1, 1)).float().unsqueeze(0)
        sampler.feedback(draw, Signals(gradient.abs(), {"critic": gradient.square()}))
        sampler.advance(update)
        np.add.at(values, at, step_size * weights * error.clip(-1, 1))
        if not np.isfinite(values).all() or abs(values).max() > 1e6:
            return most
        if update % CHECK_EVERY == 0 and np.square(values - wanted).mean() < SOLVED:
            return update
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=10, help="number of states")
    parser.add_argument("--step-sizes", type=float, nargs="*", default=[1 / 16, 1 / 8, 1 / 4])
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'sampler':12} {'step':>7} {'median':>8} {'least':>8} {'most':>8} {'of uniform':>11}")
    for step_size in arguments.step_sizes:
        base = 0.0
        for name, config in SAMPLERS.items():
            found = [updates_needed(config, arguments.length, step_size, seed) for seed in range(arguments.seeds)]
            median = statistics.median(found)
            base = base or median
            row = f"{name:12} {step_size:7.4f} {median:8.0f} {min(found):8} {max(found):8} {median / base:11.2f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
