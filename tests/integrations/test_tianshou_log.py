"""What Tianshou's log shows of the selection."""

import gymnasium as gym
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils import LazyLogger, TensorboardLogger
from torch.utils.tensorboard import SummaryWriter

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.tianshou import SelectiveReplayBuffer, SelectiveVectorReplayBuffer, attach
from aes_rl.lab.variance import captured_fraction
from tests.integrations.test_stable_baselines3_log import METRICS, single_norms
from tests.integrations.test_tianshou import SAMPLERS, filled, make, unhooked, update


def test_the_trainers_log_has_the_metrics(tmp_path) -> None:
    """In the update data, at the logger's own interval."""
    environments = DummyVectorEnv([lambda: gym.make("Pendulum-v1")])
    algorithm, buffer = make("SAC"), SelectiveVectorReplayBuffer(400, 1, sampler="adaptive:floor=0.3")
    logger = TensorboardLogger(SummaryWriter(str(tmp_path)), update_interval=10)
    attachment = attach(algorithm, buffer, logger, measure_every=20)
    collector = Collector(algorithm, environments, buffer)
    collector.reset()
    collector.collect(n_step=60, random=True)
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector, max_epochs=1, epoch_num_steps=40, collection_step_num_env_steps=1,
            update_step_num_gradient_steps_per_sample=1.0, batch_size=16, logger=logger, test_in_training=False,
            show_progress=False, verbose=False,
        )
    )  # fmt: skip
    logger.finalize()
    attachment.detach()
    assert "log_update_data" not in vars(logger)
    scalars = EventAccumulator(str(tmp_path)).Reload()
    keys = {f"update/selection/{name}" for name in METRICS}
    assert keys <= set(scalars.Tags()["scalars"])
    for key in keys:
        assert [event.step for event in scalars.Scalars(key)] == [
            event.step for event in scalars.Scalars("update/critic1_loss")
        ]
    for own, *host in zip(
        *(
            [event.value for event in scalars.Scalars(f"update/{name}")]
            for name in ("selection/unweighted_critic_loss", "critic1_loss", "critic2_loss")
        ),
        strict=True,
    ):
        assert own == pytest.approx(sum(host), rel=1e-4)
    assert 1 <= len(scalars.Scalars("update/selection/captured_fraction")) <= 2


@pytest.mark.parametrize("sampler", ["adaptive", "uniform"])
@pytest.mark.parametrize("kind", ["SAC", "TD3", "DDPG"])
def test_measuring_changes_nothing(kind, sampler) -> None:
    """Parameters, targets, optimizers and random numbers."""
    runs = []
    for measure_every in (None, 4):
        algorithm = make(kind)
        buffer = filled(SelectiveReplayBuffer(100, sampler=SAMPLERS[sampler]))
        attachment = attach(algorithm, buffer, measure_every=measure_every)
        found = []
        for _ in range(12):
            update(algorithm, buffer)
            found.append(attachment.metrics().get("captured_fraction"))
        runs.append(algorithm.state_dict())
    assert torch.equal(flat(runs[0]), flat(runs[1]))
    fractions = [value for value in found if value is not None]
    assert [number for number, value in enumerate(found, 1) if value is not None] == [4, 8, 12]
    assert all(value <= 1 for value in fractions)
    assert (max(map(abs, fractions)) < 1e-9) == (sampler == "uniform")


def flat(state):
    """All numbers of a nested state."""
    if isinstance(state, torch.Tensor):
        return state.double().flatten()
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else []
    parts = [flat(value) for value in values]
    return torch.cat(parts) if parts else torch.zeros(0).double()


def test_the_captured_fraction_is_that_of_exact_norms() -> None:
    """DDPG has no noise: every stored transition, one gradient at a time."""
    algorithm, buffer = make("DDPG"), filled(SelectiveReplayBuffer(100, sampler=SAMPLERS["adaptive"]))
    attachment = attach(algorithm, buffer, measure_every=1)
    for _ in range(30):
        update(algorithm, buffer)
    found = attachment.metrics()
    places = buffer.selection.places_of(torch.arange(100).numpy())
    attachment.detach()
    unhooked(algorithm)
    batch = algorithm._preprocess_batch(buffer[places], buffer, places)
    error = algorithm.critic(batch.obs, batch.act) - batch.returns.reshape(-1, 1)
    actor = algorithm.policy.actor
    norms = {
        "critic": single_norms(error.square(), algorithm.critic),
        "actor": single_norms(-algorithm.critic(batch.obs, algorithm.policy(batch).act), actor),
    }
    probabilities = buffer.selection.sampler.probabilities()[0]
    for name, norm in (("", sum(norms.values())), *((f"_{name}", norm) for name, norm in norms.items())):
        expected = captured_fraction(norm, probabilities).item()
        assert found[f"captured_fraction{name}"] == pytest.approx(expected, rel=1e-3)


def test_the_attachment_tells_how_it_goes() -> None:
    algorithm, buffer = make("TD3"), filled(SelectiveReplayBuffer(100, sampler=SAMPLERS["adaptive"]))
    attachment = attach(algorithm, buffer)
    for _ in range(3):
        update(algorithm, buffer)
    attachment.report()
    drawn = "3 batches drawn, feedback on 3"
    assert repr(attachment).startswith(f"<Adaptive attached to TD3: {drawn}, 100 of 100 slots filled, ")


def test_predictive_selection_is_the_default_and_a_name_is_enough() -> None:
    for make_buffer in (SelectiveReplayBuffer, lambda size, **own: SelectiveVectorReplayBuffer(size, 2, **own)):
        assert make_buffer(20).selection.config == Predictive(overwrite="fifo")
        assert make_buffer(20, sampler="adaptive").selection.config == Adaptive(overwrite="fifo")
        with pytest.raises(UserError, match="give total_updates"):
            make_buffer(20, sampler=Prioritized())
        assert make_buffer(20, sampler=Uniform()).selection.name == "Uniform"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_attachments_that_share_a_logger_are_detached_in_either_order(order) -> None:
    logger = LazyLogger()
    pairs = [(make("DDPG"), filled(SelectiveReplayBuffer(100, sampler="predictive"))) for _ in range(2)]
    attachments = [attach(*pair, logger) for pair in pairs]
    for number in order:
        attachments[number].detach()
        assert not attachments[number]._undo
    logger.log_update_data({}, 10**6)
    for algorithm, buffer in pairs:
        update(algorithm, buffer)
        with pytest.raises(RuntimeError, match="attach it to the model"):
            update(algorithm, buffer)
