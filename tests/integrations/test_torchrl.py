"""TorchRL's own losses and buffers with our samplers, against norms taken one sample at a time."""

import warnings

import gymnasium as gym
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the host warns about its own extensions while it is imported
    from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import DDPGLoss, SACLoss, TD3Loss

    from aes_rl.integrations.torchrl import SelectiveSampler, SelectiveWriter, attach

from aes_rl import Adaptive, Predictive, Prioritized, Uniform

pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3),
    "predictive": Predictive(refresh_every=5),
}
BATCH, SLOTS = 16, 60


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, observation, action):
        return self.net(torch.cat([observation, action], dim=-1))


def make_loss(kind, **options):
    torch.manual_seed(0)
    options = {"reduction": "none", "deactivate_vmap": True, "loss_function": "l2", **options}
    critic = ValueOperator(Critic(), in_keys=["observation", "action"])
    if kind == "SAC":
        net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2), NormalParamExtractor())
        actor = ProbabilisticActor(
            TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"], distribution_class=TanhNormal,
        )  # fmt: skip
        return SACLoss(actor, critic, target_entropy=-1.0, scalar_output_mode="exclude", **options)
    net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1), nn.Tanh())
    actor = TensorDictModule(net, in_keys=["observation"], out_keys=["action"])
    if kind == "TD3":
        return TD3Loss(actor, critic, bounds=(-1.0, 1.0), **options)
    del options["deactivate_vmap"]  # one critic, which never ran under vmap
    return DDPGLoss(actor, critic, **options)


LOSSES = {
    "SAC": ("qvalue", ("loss_actor", "loss_qvalue", "loss_alpha")),
    "TD3": ("qvalue", ("loss_actor", "loss_qvalue")),
    "DDPG": ("value", ("loss_actor", "loss_value")),
}


def transitions(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.rand(count, 1, generator=generator) < 0.1
    following = {
        "observation": torch.randn(count, 3, generator=generator),
        "reward": torch.randn(count, 1, generator=generator).exp(),
        "done": ends,
        "terminated": ends,
    }
    own = {
        "observation": torch.randn(count, 3, generator=generator),
        "action": 2 * torch.rand(count, 1, generator=generator) - 1,
    }
    return TensorDict({**own, "next": following}, [count])


def make_buffer(sampler, kind=TensorDictReplayBuffer, **options):
    chooser = SelectiveSampler(SAMPLERS[sampler], capacity=SLOTS)
    buffer = kind(
        storage=LazyTensorStorage(SLOTS), sampler=chooser, writer=SelectiveWriter(chooser), batch_size=BATCH, **options
    )
    return buffer, chooser


def total(loss, batch, kind):
    losses = loss(batch)
    return sum(losses[name] for name in LOSSES[kind][1]), losses


def trained(kind, sampler, updates=25, **options):
    loss = make_loss(kind)
    buffer, chooser = make_buffer(sampler, **options)
    buffer.extend(transitions(SLOTS))
    attachment = attach(loss, chooser)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-3)
    for _ in range(updates):
        summed, _ = total(loss, buffer.sample(), kind)
        optimiser.zero_grad()
        summed.mean().backward()
        optimiser.step()
    attachment.report()
    return loss, buffer, chooser, attachment


@pytest.mark.parametrize("sampler", ["adaptive", "predictive"])
@pytest.mark.parametrize("kind", LOSSES)
def test_norms_are_those_of_single_samples(kind, sampler) -> None:
    loss, buffer, chooser, attachment = trained(kind, sampler)
    batch = buffer.sample()
    number, weights = int(batch["draw"][0]), batch["priority_weight"]
    summed, losses = total(loss, batch, kind)
    pending = chooser.selection.queue[number]
    summed.mean().backward(retain_graph=True)
    attachment.report()
    critic = f"{LOSSES[kind][0]}_network_params"
    expected = {}
    for name, key, part in (("actor", "loss_actor", "actor_network_params"), ("critic", LOSSES[kind][1][1], critic)):
        parameters = [value for own, value in loss.named_parameters() if own.startswith(part)]
        norms = []
        for sample in range(BATCH):
            gradients = torch.autograd.grad(losses[key][sample], parameters, retain_graph=True)
            norms.append(sum(gradient.square().sum() for gradient in gradients))
        expected[name] = torch.stack(norms) / weights.square()
    for name, norms in expected.items():
        torch.testing.assert_close(pending.gradient_norm[name], norms, rtol=1e-4, atol=1e-9)
    assert weights.std() > 1e-3 or sampler == "predictive"


@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_are_those_without_taps_and_of_weighted_losses(kind) -> None:
    loss, buffer, _, attachment = trained(kind, "adaptive")
    batch = buffer.sample()
    weights = batch["priority_weight"].clone()
    found = []
    for is_attached, is_weighted in ((True, True), (False, True), (False, False)):
        if not is_attached:
            attachment.detach()
        torch.manual_seed(2)
        copy = batch.clone() if is_weighted else batch.clone().exclude("priority_weight")
        summed, _ = total(loss, copy, kind)
        loss.zero_grad()
        (summed if is_weighted else weights * summed).mean().backward()
        found.append({name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None})
    for name, value in found[0].items():
        assert torch.equal(found[1][name], value), name
        assert (found[2][name] - value).norm() <= 1e-6 * value.norm() + 1e-12, name


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("prefetch", [None, 3])
def test_it_learns_from_its_batches(sampler, prefetch) -> None:
    _, _, chooser, _ = trained("DDPG", sampler, prefetch=prefetch)
    spread = chooser.selection.sampler.probabilities().std()
    assert (spread > 1e-6) == (sampler != "uniform")
    assert len(chooser.selection.queue) <= 8


@pytest.mark.parametrize("kind", LOSSES)
def test_errors_are_absolute_ones(kind) -> None:
    """From the unweighted loss of every sample: δ² of one critic, or the sum of two, of which the larger counts."""
    loss, buffer, chooser, attachment = trained(kind, "prioritized")
    batch = buffer.sample()
    pending = chooser.selection.queue[int(batch["draw"][0])]
    summed, losses = total(loss, batch, kind)
    squares = losses[LOSSES[kind][1][1]].detach() / batch["priority_weight"]
    summed.mean().backward()
    attachment.report()
    found = pending.td_errors[0].square()
    if kind == "DDPG":
        torch.testing.assert_close(found, squares, rtol=1e-4, atol=1e-6)
    assert (found <= squares * (1 + 1e-4) + 1e-6).all()
    assert (found >= squares / 2 * (1 - 1e-4) - 1e-6).all()


def test_a_report_precedes_the_next_draw_and_every_save() -> None:
    loss, buffer, chooser, attachment = trained("DDPG", "adaptive", updates=1)
    before = chooser.selection.sampler.probabilities().clone()
    total(loss, buffer.sample(), "DDPG")[0].mean().backward()
    assert torch.equal(chooser.selection.sampler.probabilities(), before)
    chooser.state_dict()
    assert not torch.equal(chooser.selection.sampler.probabilities(), before)
    before = chooser.selection.sampler.probabilities().clone()
    total(loss, buffer.sample(), "DDPG")[0].mean().backward()
    buffer.sample()
    assert not torch.equal(chooser.selection.sampler.probabilities(), before)
    with pytest.raises(ValueError, match="already attached"):
        attach(loss, chooser)
    attachment.detach()
    attach(loss, chooser).detach()


def test_batches_that_are_only_looked_at_do_no_harm() -> None:
    loss, buffer, chooser, _ = trained("DDPG", "adaptive")
    for _ in range(200):
        buffer.sample()
    total(loss, buffer.sample(), "DDPG")[0].mean().backward()
    batch = buffer.sample()
    chooser.discard(batch)
    assert int(batch["draw"][0]) not in chooser.selection.queue
    assert len(chooser.selection.queue) <= 64


@pytest.mark.parametrize("sampler", ["adaptive", "uniform"])
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_slots_hold_what_was_written_to_them(sampler, kind) -> None:
    buffer, chooser = make_buffer(sampler, kind)
    shadow = {}
    for round_number in range(12):
        rows = transitions(7, seed=round_number)
        slots = buffer.extend(rows).tolist() if round_number % 3 else [int(buffer.add(row)) for row in rows]
        shadow |= {slot: row["observation"] for slot, row in zip(slots, rows, strict=True)}
    assert len(buffer) == len(chooser.selection) == SLOTS
    assert buffer.write_count == 84
    for slot, observation in shadow.items():
        assert torch.equal(buffer[slot]["observation"], observation)
    if sampler == "uniform":
        assert slots == [(84 - 7 + k) % SLOTS for k in range(7)]


@pytest.mark.parametrize("sampler", ["adaptive", "prioritized"])
def test_saved_and_loaded_it_goes_on_with_the_same_draws(sampler, tmp_path) -> None:
    """Buffer and loss, then five more updates of both: the same slots, the same parameters."""
    loss, buffer, chooser, attachment = trained("DDPG", sampler)
    buffer.extend(transitions(20, seed=5))
    buffer.dumps(tmp_path / "buffer")
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    attachment.detach()
    again, other = make_buffer(sampler)
    again.extend(transitions(1))
    again.loads(tmp_path / "buffer")
    second = make_loss("DDPG")
    second.make_value_estimator()
    second.load_state_dict(torch.load(tmp_path / "loss.pt"))
    runs = []
    for learner, own, choice in ((loss, buffer, chooser), (second, again, other)):
        watcher, slots = attach(learner, choice), []
        optimiser = torch.optim.SGD(learner.parameters(), lr=1e-2)
        for _ in range(5):
            batch = own.sample()
            slots.append(batch["index"].tolist())
            summed, _ = total(learner, batch, "DDPG")
            optimiser.zero_grad()
            summed.mean().backward()
            optimiser.step()
        watcher.detach()
        runs.append((slots, [parameter.detach().clone() for parameter in learner.parameters()]))
    assert runs[0][0] == runs[1][0]
    for own, theirs in zip(runs[0][1], runs[1][1], strict=True):
        torch.testing.assert_close(own, theirs)


def test_it_trains_on_a_real_task() -> None:
    """Pendulum-v1: states, rewards and ends from Gymnasium, actions from the library's actor."""
    loss, (buffer, chooser) = make_loss("SAC"), make_buffer("predictive")
    attach(loss, chooser)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-3)
    environment = gym.make("Pendulum-v1")
    observation, _ = environment.reset(seed=0)
    for step in range(120):
        given = TensorDict({"observation": torch.from_numpy(observation)[None]}, [1])
        with torch.no_grad():
            action = loss.actor_network.get_dist(given).rsample()[0]
        following, reward, _, _, _ = environment.step(2 * action.numpy())
        ends = torch.zeros(1, dtype=torch.bool)
        seen = {"observation": torch.from_numpy(following), "reward": torch.tensor([float(reward)])}
        after = TensorDict({**seen, "done": ends, "terminated": ends}, [])
        buffer.add(TensorDict({"observation": given["observation"][0], "action": action, "next": after}, []))
        observation = following
        if step >= 20:
            summed, _ = total(loss, buffer.sample(), "SAC")
            optimiser.zero_grad()
            summed.mean().backward()
            optimiser.step()
    assert chooser.selection.sampler.probabilities().std() > 0
    assert all(bool(parameter.isfinite().all()) for parameter in loss.parameters())


@pytest.mark.parametrize(
    ("action", "error", "line"),
    [
        (
            lambda: attach(make_loss("SAC", reduction="mean"), make_buffer("adaptive")[1]),
            ValueError,
            "reduction is 'mean'",
        ),
        (lambda: attach(make_loss("SAC", deactivate_vmap=False), make_buffer("adaptive")[1]), ValueError, "under vmap"),
        (lambda: attach(nn.Linear(1, 1), make_buffer("adaptive")[1]), TypeError, "Linear cannot be attached"),
        (
            lambda: attach(make_loss("SAC", use_prioritized_weights=False), make_buffer("adaptive")[1]),
            ValueError,
            "use_prioritized_weights is off",
        ),
        (
            lambda: TensorDictReplayBuffer(
                storage=LazyTensorStorage(5), writer=SelectiveWriter(SelectiveSampler(Uniform(), capacity=6))
            ),
            ValueError,
            "the storage has 5 slots and the sampler 6",
        ),
    ],
)
def test_what_is_not_supported_is_refused(action, error, line) -> None:
    with pytest.raises(error, match=line):
        action()


def test_a_loss_that_was_not_attached_is_noticed() -> None:
    buffer, _ = make_buffer("adaptive")
    buffer.extend(transitions(SLOTS))
    for _ in range(64):
        buffer.sample()
    with pytest.raises(RuntimeError, match="64 batches were drawn and Adaptive got feedback on none"):
        buffer.sample()


def test_a_reordered_batch_is_refused() -> None:
    """Its feedback would go to other slots."""
    loss, buffer, _, _ = trained("SAC", "adaptive")
    batch = buffer.sample()
    for changed in (batch[torch.arange(BATCH - 1, -1, -1)], batch[:5]):
        with pytest.raises(ValueError, match="reordered, cut or reweighted after it was drawn"):
            loss(changed)
    total(loss, batch, "SAC")[0].mean().backward()


def test_losses_computed_apart_are_noticed_where_the_sampler_needs_both() -> None:
    """The second call on a batch gives no feedback, so a sampler that needs the actor's norms would never learn."""
    loss = make_loss("TD3")
    chooser = SelectiveSampler(Predictive(networks="balanced"), capacity=SLOTS)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(SLOTS), sampler=chooser, writer=SelectiveWriter(chooser), batch_size=BATCH
    )
    buffer.extend(transitions(SLOTS))
    attach(loss, chooser)

    def update() -> None:
        batch = buffer.sample()
        loss(batch)["loss_qvalue"].mean().backward()
        loss(batch)["loss_actor"].mean().backward()

    for _ in range(99):
        update()
    with pytest.raises(RuntimeError, match="got no norms of actor in 100 updates in a row"):
        update()
