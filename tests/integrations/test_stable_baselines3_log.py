"""What Stable-Baselines3's log shows of the selection, and what is inferred from its arguments."""

import csv
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveDictReplayBuffer, SelectiveReplayBuffer, attach
from aes_rl.lab.variance import captured_fraction
from tests.integrations.test_stable_baselines3 import Split, copy_of

METRICS = {
    "smallest_weight", "largest_weight", "effective_sample_size", "never_reported", "median_feedback_age",
    "weighted_critic_loss", "unweighted_critic_loss",
}  # fmt: skip


class Short(gym.Wrapper):
    """Pendulum with episodes of ten steps, so that the log is written often."""

    def __init__(self):
        super().__init__(gym.wrappers.TimeLimit(gym.make("Pendulum-v1").unwrapped, 10))


def make(kind, sampler, environments=1, **options):
    return kind(
        "MlpPolicy",
        DummyVecEnv([Short] * environments),
        buffer_size=400,
        learning_starts=options.pop("learning_starts", 60),
        batch_size=16,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": sampler, **options.pop("buffer", {})},
        seed=0,
        device="cpu",
        **options,
    )


@pytest.fixture
def log_to():
    """Make a model's logger write a CSV file."""
    loggers = []

    def log_to(model, folder):
        loggers.append(configure(str(folder), ["csv"]))
        model.set_logger(loggers[-1])

    yield log_to
    for logger in loggers:
        logger.close()


def logged(folder):
    """The rows of the host's CSV log that have training in them."""
    with (folder / "progress.csv").open() as file:
        return [row for row in csv.DictReader(file) if row.get("train/critic_loss")]


@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
def test_the_log_shows_weights_feedback_and_both_losses(kind, tmp_path, log_to) -> None:
    """The unweighted loss is the host's own; the weighted one is over the same terms, with the batch's weights."""
    model = make(kind, Adaptive(nu=1.0, floor=0.3))
    log_to(model, tmp_path)
    attach(model)
    model.learn(160, log_interval=2)  # the last log is at the last step
    rows = logged(tmp_path)
    assert len(rows) >= 4
    for row in rows:
        assert {name.removeprefix("selection/") for name in row if name.startswith("selection/")} == METRICS
        own = {name: float(row[f"selection/{name}"]) for name in METRICS}
        assert own["unweighted_critic_loss"] == pytest.approx(float(row["train/critic_loss"]), rel=1e-5)
        assert own["smallest_weight"] <= 1 <= own["largest_weight"]
        assert 1 <= own["effective_sample_size"] <= 16
    assert own["weighted_critic_loss"] != pytest.approx(own["unweighted_critic_loss"], rel=1e-4)
    last = model.replay_buffer.selection.last
    terms = sum(compute() for compute in last.critic_terms)
    assert own["weighted_critic_loss"] == pytest.approx((last.weights * terms).mean().item(), rel=1e-5)


def test_the_loss_terms_are_those_of_single_samples() -> None:
    """½δ² per critic in SAC, with the errors worked out from the batch that was drawn."""
    model = make(SAC, Adaptive(), ent_coef=0.1)
    attach(model)
    model.learn(80)
    policy, seen = copy_of(model), {}
    sample = model.replay_buffer.sample
    model.replay_buffer.sample = lambda *arguments, **options: seen.setdefault("batch", sample(*arguments, **options))
    torch.manual_seed(3)
    model.train(1, 16)
    batch = seen["batch"]
    torch.manual_seed(3)
    policy.actor.action_log_prob(batch.observations)
    with torch.no_grad():
        following, log = policy.actor.action_log_prob(batch.next_observations)
        value = torch.cat(policy.critic_target(batch.next_observations, following), dim=1).min(1, keepdim=True)[0]
        target = batch.rewards + (1 - batch.dones) * model.gamma * (value - 0.1 * log.reshape(-1, 1))
        estimates = policy.critic(batch.observations, batch.actions)
    model.replay_buffer.selection.settle()
    found = [compute() for compute in model.replay_buffer.selection.last.critic_terms]
    assert len(found) == 2
    expected = sorted((0.5 * (estimate - target).square().squeeze(1) for estimate in estimates), key=torch.sum)
    for own, other in zip(sorted(found, key=torch.sum), expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_tensorboard_gets_the_same(tmp_path) -> None:
    """The logger that `learn` makes itself, anew at every call."""
    model = make(SAC, Predictive(), tensorboard_log=str(tmp_path))
    attach(model)
    model.learn(100, log_interval=2)
    model.logger.close()
    model.learn(40, log_interval=2, reset_num_timesteps=False)
    model.logger.close()
    for folder in tmp_path.iterdir():
        events = EventAccumulator(str(folder)).Reload()
        assert {f"selection/{name}" for name in METRICS} <= set(events.Tags()["scalars"])
        assert [event.step for event in events.Scalars("selection/largest_weight")][-1] == 140


def test_detached_or_without_a_reader_nothing_is_computed(tmp_path, log_to) -> None:
    model = make(SAC, Adaptive())
    attachment = attach(model)
    calls = []
    original = attachment.metrics
    attachment.metrics = lambda: calls.append(1) or original()
    model.learn(100, log_interval=2)  # a logger without any output
    assert not calls
    log_to(model, tmp_path)
    model.learn(100, log_interval=2)
    assert len(calls) == 2  # episodes 8 and 10; the logger is known from the first update on
    attachment.detach()
    model.replay_buffer.selection.discard()
    model.logger.dump(0)
    assert len(calls) == 2
    assert "dump" not in vars(model.logger)


@pytest.mark.parametrize("sampler", [Adaptive(nu=1.0, floor=0.3), Prioritized(), Uniform()])
@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
def test_measuring_changes_nothing(kind, sampler, tmp_path, log_to) -> None:
    """Parameters, optimizers, targets and random numbers: the run with measurements is the run without."""
    runs, found = [], []
    for measure_every in (None, 10):
        model = make(kind, sampler)
        folder = tmp_path / str(measure_every)
        log_to(model, folder)
        attach(model, measure_every=measure_every)
        model.learn(150, log_interval=2)
        runs.append([*model.policy.parameters(), *(torch.as_tensor(x) for x in state_of(model.critic.optimizer))])
        found.append([row.get("selection/captured_fraction") for row in logged(folder)])
    for own, other in zip(*runs, strict=True):
        assert torch.equal(own, other)
    assert set(found[0]) == {None}
    fractions = [float(value) for value in found[1] if value]
    assert len(fractions) >= 3
    assert all(math.isfinite(value) and value <= 1 for value in fractions)
    if isinstance(sampler, Uniform):
        assert fractions == pytest.approx([0] * len(fractions), abs=1e-9)
    else:
        assert min(abs(value) for value in fractions) > 1e-3


def state_of(optimizer):
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def test_the_captured_fraction_is_that_of_exact_norms() -> None:
    """DDPG has no noise: every stored transition, one gradient at a time."""
    model = make(DDPG, Adaptive(nu=1.0, floor=0.3))
    attachment = attach(model, measure_every=1)
    model.learn(120)
    found = attachment.metrics()
    policy, selection = copy_of(model), model.replay_buffer.selection
    batch = model.replay_buffer.rows_at(np.arange(120))
    with torch.no_grad():
        following = policy.actor_target(batch.next_observations)
        target = (
            batch.rewards
            + (1 - batch.dones) * model.gamma * policy.critic_target(batch.next_observations, following)[0]
        )
    estimates = policy.critic(batch.observations, batch.actions)[0]
    norms = {
        "critic": single_norms((estimates - target).square(), policy.critic),
        "actor": single_norms(
            -policy.critic.q1_forward(batch.observations, policy.actor(batch.observations)), policy.actor
        ),
    }
    probabilities = selection.sampler.probabilities()[0]
    total = norms["actor"] + norms["critic"]
    assert found["captured_fraction"] == pytest.approx(captured_fraction(total, probabilities).item(), rel=1e-3)
    for name, norm in norms.items():
        expected = captured_fraction(norm, probabilities).item()
        assert found[f"captured_fraction_{name}"] == pytest.approx(expected, rel=1e-3)


def test_a_sample_of_the_slots_estimates_the_fraction_of_all(monkeypatch) -> None:
    """Its probabilities do not sum to one; uniform replay must still capture nothing."""
    monkeypatch.setattr("aes_rl.integrations.attachment._MEASURED_SLOTS", 50)
    for sampler in (Uniform(), Adaptive(nu=1.0, floor=0.3)):
        model = make(DDPG, sampler)
        attachment = attach(model, measure_every=1)
        model.learn(200)
        found = attachment.metrics()["captured_fraction"]
        assert found <= 1
        assert (abs(found) < 1e-9) == isinstance(sampler, Uniform)


def single_norms(terms, network):
    """The squared gradient norm of each term."""
    parameters, norms = list(network.parameters()), []
    for term in terms.squeeze(1):
        gradients = torch.autograd.grad(term, parameters, retain_graph=True)
        norms.append(sum(gradient.double().square().sum() for gradient in gradients))
    return torch.stack(norms)


def test_it_is_measured_when_due_and_shown() -> None:
    model = make(TD3, Adaptive(nu=1.0), policy_delay=3)
    attachment = attach(model, measure_every=20)
    assert repr(attachment) == "<Adaptive attached to TD3: 0 batches drawn, feedback on 0, 0 of 400 slots filled>"
    model.learn(100)
    model.policy.set_training_mode(False)
    first = attachment.metrics()
    assert not model.policy.training
    assert {"captured_fraction", "captured_fraction_actor", "captured_fraction_critic"} <= set(first)
    assert "captured_fraction" not in attachment.metrics()
    line = repr(attachment)
    assert line.startswith("<Adaptive attached to TD3: 40 batches drawn, feedback on 40, 100 of 400 slots filled, ")
    assert f"{first['never_reported']:.0%} of them never reported" in line
    assert f"effective sample size {first['effective_sample_size']:.0f} of 16" in line
    assert line.endswith(f"captured fraction {first['captured_fraction']:.2f} at update 40>")
    with pytest.raises(ValueError, match="measure_every"):
        attach(make(TD3, Adaptive()), measure_every=0)


@pytest.mark.parametrize(
    ("environments", "options", "steps"),
    [
        (1, {}, 150),
        (1, {"train_freq": 7, "gradient_steps": 3}, 150),
        (1, {"train_freq": 7, "gradient_steps": -1}, 149),
        (3, {"train_freq": 4, "gradient_steps": 2}, 150),
        (3, {"learning_starts": 0}, 31),
        (2, {"learning_starts": 24, "train_freq": 6, "gradient_steps": -1}, 100),
    ],
)
def test_the_number_of_updates_is_inferred(environments, options, steps) -> None:
    """Against the updates that the host makes."""
    model = make(DDPG, Prioritized(), environments, **options)
    attach(model)
    model.learn(steps)
    selection = model.replay_buffer.selection
    selection.settle()
    assert selection.total_updates == selection.updates > 0
    assert selection.sampler.rules[0].weight_exponent.item() == 1.0


def test_episodes_of_unknown_length() -> None:
    model = make(DDPG, Prioritized(), train_freq=(1, "episode"), gradient_steps=-1)
    attach(model)
    model.learn(150)
    selection = model.replay_buffer.selection
    selection.settle()
    assert selection.total_updates == 90
    assert selection.updates == pytest.approx(90, abs=10)
    model = make(DDPG, Prioritized(), train_freq=(1, "episode"), gradient_steps=5)
    attach(model)
    with pytest.raises(UserError, match=r"train_freq is 1 episodes of unknown length.* give total_updates"):
        model.learn(150)


def test_a_given_number_of_updates_wins_and_a_missing_one_is_named() -> None:
    model = make(DDPG, Prioritized(), buffer={"total_updates": 1000})
    attach(model)
    model.learn(80)
    assert model.replay_buffer.selection.total_updates == 1000
    model = make(DDPG, Prioritized())
    with pytest.raises(UserError, match="attach it to the model before training, or give total_updates"):
        model.learn(80)
    model = make(DDPG, Prioritized())
    attach(model)
    row = np.zeros((1, 3), np.float32)
    with pytest.raises(UserError, match=r"unknown before learn\(\), and a transition was stored: give total_updates"):
        model.replay_buffer.add(row, row, row[:, :1], np.zeros(1), np.zeros(1), [{}])


def test_predictive_selection_is_the_default_and_a_name_is_enough() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=100, replay_buffer_class=SelectiveReplayBuffer, device="cpu")
    assert model.replay_buffer.selection.config == Predictive()
    assert make(SAC, "adaptive").replay_buffer.selection.config == Adaptive()
    with pytest.raises(UserError, match="unknown sampler 'adaptiv'"):
        make(SAC, "adaptiv")


def test_the_buffer_follows_the_observation_space(tmp_path) -> None:
    """As with the host's own buffers, one class is named, and loaded it is what it was."""
    model = SAC(
        "MultiInputPolicy",
        DummyVecEnv([lambda: Split(Short())]),
        buffer_size=100,
        learning_starts=20,
        batch_size=8,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=SelectiveReplayBuffer,
        device="cpu",
    )
    assert type(model.replay_buffer) is SelectiveDictReplayBuffer
    assert type(make(SAC, Uniform()).replay_buffer) is SelectiveReplayBuffer
    attach(model)
    model.learn(40)
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    assert type(model.replay_buffer) is SelectiveDictReplayBuffer
    model.learn(10, reset_num_timesteps=False)


def test_a_saved_model_holds_nothing_of_the_attachment(tmp_path, log_to) -> None:
    """What hangs on the model itself would be pickled with it."""
    model = make(SAC, Predictive())
    before = set(vars(model))
    attach(model, measure_every=10)
    log_to(model, tmp_path)
    model.learn(100, log_interval=2)
    assert set(vars(model)) - before <= {"_logger", "_custom_logger"}
    model.save(tmp_path / "model")
    SAC.load(tmp_path / "model", device="cpu")
