"""What TorchRL's loggers get to see of the selection."""

import time
import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the host warns about its own extensions while it is imported
    from torchrl.envs.transforms import ObservationNorm
    from torchrl.record.loggers import CSVLogger

    from aes_rl.integrations.torchrl import SelectiveSampler, attach

from aes_rl import Adaptive, Predictive
from aes_rl.errors import UserError
from aes_rl.lab.variance import captured_fraction
from tests.integrations.test_stable_baselines3_log import METRICS, single_norms
from tests.integrations.test_torchrl import LOSSES, SLOTS, make_buffer, make_loss, total, transitions

pytestmark = pytest.mark.filterwarnings("ignore")


def train(kind, sampler, updates=12, logger=None, transform=None, prefetch=None, **options):
    loss = make_loss(kind)
    buffer, chooser = make_buffer(sampler, transform=transform, prefetch=prefetch)
    buffer.extend(transitions(SLOTS))
    attachment = attach(loss, chooser, logger, **options)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    means = []
    torch.manual_seed(4)
    for _ in range(updates):
        summed, losses = total(loss, buffer.sample(), kind)
        means.append(losses[LOSSES[kind][1][1]].mean().item())
        optimizer.zero_grad()
        summed.mean().backward()
        optimizer.step()
    return loss, buffer, attachment, means


@pytest.mark.parametrize("prefetch", [None, 2])
@pytest.mark.parametrize("sampler", ["adaptive", "prioritized"])
def test_a_logger_gets_the_metrics(sampler, prefetch, tmp_path) -> None:
    """The host's loss is the weighted one here, so the log has the same number, and the unweighted one beside it."""
    logger = CSVLogger("run", str(tmp_path))
    _, _, attachment, means = train("TD3", sampler, 13, logger, prefetch=prefetch, log_every=4)
    folder = tmp_path / "run" / "scalars" / "selection"
    assert {file.stem for file in folder.iterdir()} == METRICS
    written = {file.stem: [line.split(",") for line in file.read_text().split()] for file in folder.iterdir()}
    for rows in written.values():
        assert [int(step) for step, _ in rows] == [4, 8, 12]
    assert [float(value) for _, value in written["weighted_critic_loss"]] == pytest.approx(means[3:12:4], rel=1e-5)
    last = {name: float(rows[-1][1]) for name, rows in written.items()}
    assert last["weighted_critic_loss"] != pytest.approx(last["unweighted_critic_loss"], rel=1e-6)
    for file in logger.experiment.files.values():
        file.close()
    count, deadline = 13 + (prefetch or 0), time.monotonic() + 60
    while attachment.selection().draws < count and time.monotonic() < deadline:
        time.sleep(0.01)  # threads may still draw ahead
    drawn = f"{count} batches drawn, feedback on 12"
    assert repr(attachment).startswith(f"<{sampler.capitalize()} attached to TD3Loss: {drawn}, 60 of 60 slots ")


@pytest.mark.parametrize("sampler", ["adaptive", "prioritized", "uniform"])
@pytest.mark.parametrize("kind", LOSSES)
def test_measuring_changes_nothing(kind, sampler, tmp_path) -> None:
    """Parameters, gradients in waiting and random numbers; a logger asks in the middle of the host's forward call."""
    runs = []
    for measure_every in (None, 5):
        logger = CSVLogger(f"{measure_every}", str(tmp_path))
        loss, buffer, attachment, _ = train(kind, sampler, 17, logger, log_every=1, measure_every=measure_every)
        total(loss, buffer.sample(), kind)[0].mean().backward()
        runs.append([*loss.parameters(), *(p.grad for p in loss.parameters() if p.grad is not None)])
        for file in logger.experiment.files.values():
            file.close()
    for own, other in zip(*runs, strict=True):
        assert torch.equal(own, other)
    assert not (tmp_path / "None" / "scalars" / "selection" / "captured_fraction.csv").exists()
    lines = (tmp_path / "5" / "scalars" / "selection" / "captured_fraction.csv").read_text().split()
    found = {int(step): float(value) for step, value in (line.split(",") for line in lines)}
    assert list(found) == [5, 10, 15]
    assert (max(map(abs, found.values())) < 1e-9) == (sampler == "uniform")
    assert attachment.selection().updates >= 17


def test_the_captured_fraction_is_that_of_exact_norms() -> None:
    """DDPG has no noise: every stored transition as the buffer's transform shows it, one gradient at a time."""
    transform = ObservationNorm(loc=0.5, scale=3.0, in_keys=["observation"])
    loss, buffer, attachment, _ = train("DDPG", "adaptive", 30, transform=transform, measure_every=1)
    found = attachment.metrics()
    attachment.detach()
    losses = loss(buffer[:])
    norms = {}
    for name, key, part in (("actor", "loss_actor", "actor"), ("critic", "loss_value", "value")):
        parameters = [value for own, value in loss.named_parameters() if own.startswith(f"{part}_network_params")]
        norms[name] = single_norms(losses[key].unsqueeze(1), Parameters(parameters))
    probabilities = attachment.selection().sampler.probabilities()[0]
    for name, norm in (("", sum(norms.values())), *((f"_{name}", norm) for name, norm in norms.items())):
        expected = captured_fraction(norm, probabilities).item()
        assert found[f"captured_fraction{name}"] == pytest.approx(expected, rel=1e-3)


class Parameters:
    """A network as far as its parameters."""

    def __init__(self, parameters):
        self.parameters = lambda: parameters


def test_a_batch_that_waits_for_its_backward_pass_is_not_lost() -> None:
    """A measurement between the loss and its backward pass."""
    loss, buffer, attachment, _ = train("DDPG", "adaptive", measure_every=1)
    summed, _ = total(loss, buffer.sample(), "DDPG")
    before = attachment.selection().updates
    assert "captured_fraction" in attachment.metrics()
    summed.mean().backward()
    attachment.report()
    assert attachment.selection().updates == before + 1


def test_predictive_selection_is_the_default_and_a_name_is_enough() -> None:
    assert SelectiveSampler(capacity=10).selection.config == Predictive()
    assert SelectiveSampler("adaptive", capacity=10).selection.config == Adaptive()
    with pytest.raises(UserError, match="unknown sampler 'adaptiv'"):
        SelectiveSampler("adaptiv", capacity=10)
    with pytest.raises(UserError, match="give total_updates"):
        SelectiveSampler("prioritized", capacity=10)
