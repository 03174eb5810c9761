"""LA3P against two dictionaries of masses: the critics' and, from the same reports, the actor's."""

import pytest
import torch

from aes_rl import Predictive, Prioritized, Replay, Signals, Transition
from aes_rl.errors import UserError
from aes_rl.samplers.la3p import LA3P
from aes_rl.samplers.registry import resolve

SLOTS, BATCH = 10, 4
CONFIG = LA3P(priority_exponent=0.7, smallest_error=0.5, floor=0.3)


def make_replay(configs, seeds, backend):
    return Replay(configs, capacity=SLOTS, observation_size=1, action_size=1, seeds=seeds, backend=backend)


def transition(members, value):
    numbers = torch.full((members,), float(value))
    column = numbers.unsqueeze(-1)
    return Transition(column, column, numbers, column, torch.zeros(members))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_actor_draws_by_the_inverse_of_the_critics_priorities(backend, beside) -> None:
    configs = [Prioritized(weight_exponent_end=None), CONFIG, Predictive(networks="separate")] if beside else [CONFIG]
    member = int(beside)
    replay = make_replay(configs, [7, 8, 9][: len(configs)], backend)
    actor_row = replay.network_draws.actor_members[member]
    priorities, largest = {}, 1.0
    for number in range(50):
        slot = number % SLOTS
        replay.add(transition(len(configs), number))
        priorities[slot] = largest
        sample = replay.sample(BATCH)
        errors = 3 * torch.rand(len(configs), BATCH, generator=torch.Generator().manual_seed(number))
        replay.feedback(sample.draw, Signals(errors, {"critic": errors, "actor": errors}))
        for slot, error in zip(sample.draw.slots[member].tolist(), errors[member].tolist(), strict=True):
            priorities[slot] = max(error, 0.5) ** 0.7
            largest = max(largest, priorities[slot])
        masses = torch.tensor([priorities[slot] for slot in range(len(replay))], dtype=torch.float64)
        for row, expected in ((member, masses), (actor_row, 1 / masses)):
            found = replay.sampler.probabilities()[row]
            assert torch.allclose(found, 0.7 * expected / expected.sum() + 0.3 / len(replay), rtol=1e-6)
        assert sample.weights[member].tolist() == [1.0] * BATCH
        assert sample.actor.weights[member].tolist() == [1.0] * BATCH


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_saved_state_continues(backend) -> None:
    def steps(replay, first, count):
        for number in range(first, first + count):
            replay.add(transition(1, number))
            sample = replay.sample(BATCH)
            replay.feedback(sample.draw, Signals(sample.batch.reward))
            yield sample.batch.reward.tolist(), sample.actor.batch.reward.tolist()

    replay, restored = (make_replay([CONFIG], [3], backend) for _ in range(2))
    list(steps(replay, 0, 25))
    restored.load_state_dict({name: value.clone() for name, value in replay.state_dict().items()})
    assert list(steps(replay, 25, 20)) == list(steps(restored, 25, 20))


def test_which_draw_a_distribution_is_for_is_no_option() -> None:
    with pytest.raises(UserError, match="there is no option 'draws_for'"):
        resolve("la3p:draws_for=actor")
