"""QR-DQN and TQC of sb3-contrib under attachment, against one gradient per sample computed by hand."""

import pytest
import torch
from sb3_contrib import QRDQN, TQC, CrossQ
from sb3_contrib.common.utils import quantile_huber_loss

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach
from tests.integrations.copies import copied

SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3, overwrite="fifo"),
    "predictive": Predictive(refresh_every=5),
}
BATCH = 16
SMALL = {QRDQN: {"n_quantiles": 7}, TQC: {"n_quantiles": 5, "n_critics": 3}, CrossQ: {}}


def make(kind, sampler="uniform", n_steps=1, policy=None, **options):
    return kind(
        "MlpPolicy",
        "CartPole-v1" if kind is QRDQN else "Pendulum-v1",
        buffer_size=120,
        learning_starts=40,
        batch_size=BATCH,
        train_freq=1,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [16], **SMALL[kind], **(policy or {})},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": SAMPLERS[sampler], "n_steps": n_steps, "gamma": 0.99},
        seed=0,
        device="cpu",
        **options,
    )


def unhooked(model):
    """A copy of the policy with the same optimizers and without our hooks."""
    policy = copied(model.policy)
    for module in policy.modules():
        vars(module).pop("action_log_prob", None)
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    for network in (policy.critic,) if isinstance(model, TQC) else ():
        network.optimizer._optimizer_step_pre_hooks.clear()
        network.optimizer._optimizer_step_post_hooks.clear()
    return policy


def one_update(model, network):
    """What one call of `train` did: the gradients of a network that its optimizer took, and the batch."""
    taken = []
    optimizer = network.optimizer if isinstance(model, TQC) else model.policy.optimizer
    handle = optimizer.register_step_pre_hook(lambda *_: taken.append([p.grad.clone() for p in network.parameters()]))
    model.train(1, BATCH)
    handle.remove()
    return taken[0], model.replay_buffer.selection.pending


def by_hand(terms, parameters, weights):
    """The gradient of the weighted mean of the terms, and the squared norm of the gradient of each."""
    total, norms = [torch.zeros_like(p) for p in parameters], []
    for term, weight in zip(terms, weights, strict=True):
        gradients = torch.autograd.grad(term, parameters, retain_graph=True)
        norms.append(sum(part.square().sum() for part in gradients))
        total = [sum_ + weight * part / len(weights) for sum_, part in zip(total, gradients, strict=True)]
    return total, torch.stack(norms)


def check(found, expected, norms, name, pending, sampler):
    difference = torch.sqrt(sum((a - b).square().sum() for a, b in zip(found, expected, strict=True)))
    assert difference <= 1e-4 * torch.sqrt(sum(part.square().sum() for part in expected))
    if sampler in ("adaptive", "predictive"):
        assert (pending.gradient_norm[name] - norms).abs().max() <= 1e-4 * norms.mean()


def check_errors(pending, errors, losses, sampler):
    if sampler == "prioritized":
        assert (torch.stack(pending.td_errors).mean(dim=0) - errors).abs().max() <= 1e-5
        assert pending.weights.std() > 1e-3
    torch.testing.assert_close(sum(compute() for compute in pending.critic_terms), losses, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_qrdqn(sampler, n_steps) -> None:
    """The error is that of the mean of the quantiles, and the loss that of the library, sample by sample."""
    model = make(QRDQN, sampler, n_steps)
    attach(model)
    model.learn(120)
    policy = unhooked(model)
    found, pending = one_update(model, model.quantile_net)
    batch, network = pending.batch, policy.quantile_net
    discounts = model.gamma if batch.discounts is None else batch.discounts
    with torch.no_grad():
        following = policy.quantile_net_target(batch.next_observations)
        best = following.mean(1).argmax(1)
        target = batch.rewards + (1 - batch.dones) * discounts * torch.stack(
            [row[:, action] for row, action in zip(following, best, strict=True)]
        )
    estimates = network(batch.observations)
    own = torch.stack([row[:, action] for row, action in zip(estimates, batch.actions.squeeze(1).long(), strict=True)])
    terms = [quantile_huber_loss(own[i : i + 1], target[i : i + 1]) for i in range(BATCH)]
    expected, norms = by_hand(terms, list(network.parameters()), pending.weights)
    model.replay_buffer.selection.settle()
    check(found, expected, norms, "critic", pending, sampler)
    check_errors(pending, (target.mean(1) - own.mean(1)).abs().detach(), torch.stack(terms).detach(), sampler)


@pytest.mark.parametrize("entropy", ["auto", 0.3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_tqc(sampler, entropy) -> None:
    """The target leaves out the largest quantiles, and uses the temperature from before its own step."""
    model = make(TQC, sampler, ent_coef=entropy, top_quantiles_to_drop_per_net=2)
    attach(model)
    model.learn(120)
    policy, log = unhooked(model), model.log_ent_coef
    temperature = 0.3 if log is None else log.detach().exp().item()
    state = torch.get_rng_state()
    found, pending = one_update(model, model.critic)
    batch, actor, critic = pending.batch, policy.actor, policy.critic
    torch.set_rng_state(state)
    actions, log_probability = actor.action_log_prob(batch.observations)
    with torch.no_grad():
        following, next_log = actor.action_log_prob(batch.next_observations)
        together = policy.critic_target(batch.next_observations, following).reshape(BATCH, -1).sort().values
        following = together[:, : 15 - 6] - temperature * next_log.reshape(-1, 1)
        target = batch.rewards + (1 - batch.dones) * model.gamma * following
    own = critic(batch.observations, batch.actions)
    terms = [
        quantile_huber_loss(own[i : i + 1], target[i : i + 1, None], sum_over_quantiles=False) for i in range(BATCH)
    ]
    expected, norms = by_hand(terms, list(critic.parameters()), pending.weights)
    model.replay_buffer.selection.settle()
    check(found, expected, norms, "critic", pending, sampler)
    errors = (target.mean(1, keepdim=True) - own.mean(2)).abs().mean(1).detach()
    check_errors(pending, errors, torch.stack(terms).detach(), sampler)
    critic.load_state_dict(model.critic.state_dict())  # the actor's loss uses the critics after their step
    values = critic(batch.observations, actions).mean(2).mean(1)
    _, norms = by_hand(temperature * log_probability - values, list(actor.parameters()), pending.weights)
    if sampler in ("adaptive", "predictive"):
        assert (pending.gradient_norm["actor"] - norms).abs().max() <= 1e-4 * norms.mean()


@pytest.mark.parametrize("kind", [QRDQN, TQC])
def test_measuring_changes_nothing(kind) -> None:
    """The losses are computed once more for the captured fraction, without a step."""
    models = []
    for measure_every in (None, 20):
        model = make(kind, "predictive")
        attachment = attach(model, measure_every)
        model.learn(100)
        assert ("captured_fraction_critic" in attachment.metrics()) == (measure_every is not None)
        models.append(model)
    for own, other in zip(*(list(model.policy.parameters()) for model in models), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("kind", [QRDQN, TQC])
def test_saved_and_loaded_it_goes_on_with_the_same_draws(kind, tmp_path) -> None:
    model = make(kind, "prioritized")
    attach(model)
    model.learn(80)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = kind.load(tmp_path / "model", env=model.get_env(), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    attach(again)
    slots = []
    for one in (model, again):
        one._setup_learn(10, None)
        torch.manual_seed(0)
        one.train(3, BATCH)
        slots.append(one.replay_buffer.selection.pending.draw.slots[0].tolist())
    assert slots[0] == slots[1]
    for own, other in zip(model.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(own, other)


def test_crossq_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match=r"CrossQ cannot be attached: its BatchNorm .* use SAC or TQC"):
        attach(make(CrossQ))


@pytest.mark.parametrize("kind", [QRDQN, TQC])
def test_errors_that_the_loss_does_not_clip(kind) -> None:
    with pytest.raises(UserError, match=rf"clips_errors is True, and the loss of {kind.__name__} .*; omit"):
        attach(make(kind), clips_errors=True)
