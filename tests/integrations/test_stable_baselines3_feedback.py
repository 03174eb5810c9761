"""Which batches count in Stable-Baselines3: interrupted updates, passes of callbacks, other buffers."""

import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback

from aes_rl import Adaptive, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach
from aes_rl.samplers.geometric import Geometric

BATCH = 16


def make(kind, sampler, buffer=None, **options):
    return kind(
        "MlpPolicy",
        "CartPole-v1" if kind in (DQN, QRDQN) else "Pendulum-v1",
        buffer_size=200,
        learning_starts=options.pop("learning_starts", 40),
        batch_size=BATCH,
        train_freq=1,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": sampler, **(buffer or {})},
        seed=0,
        device="cpu",
        **options,
    )


@pytest.mark.parametrize("networks", [("actor",), ("actor", "critic")])
@pytest.mark.parametrize("kind", [DQN, QRDQN])
def test_a_network_that_is_not_trained_is_refused(kind, networks, tmp_path) -> None:
    """Its norm is never reported, so the sampler would never learn; also in a buffer that is loaded later."""
    other = make(kind, Adaptive(networks=networks))
    line = rf"and {kind.__name__} trains only 'critic'; use networks=None"
    with pytest.raises(UserError, match=line):
        attach(other)
    other.save_replay_buffer(tmp_path / "buffer")
    model = make(kind, Adaptive(networks=("critic",), nu=1.0))
    attach(model)
    model.learn(60)
    assert model.replay_buffer.selection.sampler.probabilities().std() > 0
    model.load_replay_buffer(tmp_path / "buffer")
    with pytest.raises(UserError, match=line):
        model.learn(60)


class Interrupted(Exception):
    """Stands for Ctrl-C."""


def stop(*arguments):
    del arguments
    raise Interrupted


@pytest.mark.parametrize("sampler", [Predictive(), Prioritized(weight_exponent_end=None)])
@pytest.mark.parametrize("where", ["target", "critic step"])
@pytest.mark.parametrize("kind", [DQN, SAC])
def test_an_interrupted_update_is_dropped(kind, where, sampler, tmp_path) -> None:
    """Saving the buffer and the next `learn` work, and no part of the feedback counts as the whole."""
    model = make(kind, sampler)
    attachment = attach(model)
    model.learn(60)
    selection = model.replay_buffer.selection
    target = model.q_net_target if kind is DQN else model.critic_target
    optimizer = model.policy.optimizer if kind is DQN else model.critic.optimizer
    for go_on in ("save", "learn", "metrics"):
        updates = selection.draws
        hook = target.register_forward_hook(stop) if where == "target" else optimizer.register_step_pre_hook(stop)
        with pytest.raises(Interrupted):
            model.learn(5, reset_num_timesteps=False)
        hook.remove()
        assert selection.draws == updates + 1
        if go_on == "save":
            model.save_replay_buffer(tmp_path / "buffer")
            model.load_replay_buffer(tmp_path / "buffer")
            assert not selection.queue
        elif go_on == "metrics":
            attachment.metrics()
        # The feedback is complete if all its parts were known at the critics' step.
        is_complete = where == "critic step" and (kind is DQN or isinstance(sampler, Prioritized))
        model.learn(5, reset_num_timesteps=False)
        selection = model.replay_buffer.selection
        selection.settle()
        lost = selection.draws - selection.updates
        assert lost == (0 if is_complete else ["save", "learn", "metrics"].index(go_on) + 1)
        if isinstance(sampler, Predictive):
            assert set(selection.last.gradient_norm) == ({"critic"} if kind is DQN else {"actor", "critic"})


def test_an_interrupted_pass_does_not_weight_the_next_one(tmp_path) -> None:
    """Interrupted inside the network, saved, and differentiated at something else."""
    model = make(DQN, Adaptive(nu=1.0, floor=0.3))
    attachment = attach(model)
    model.learn(80)
    hook = model.q_net.q_net[0].register_forward_hook(lambda *_: stop() if torch.is_grad_enabled() else None)
    with pytest.raises(Interrupted):
        model.learn(5, reset_num_timesteps=False)
    hook.remove()
    assert model.replay_buffer.selection.pending.weights.std() > 0
    model.save_replay_buffer(tmp_path / "buffer")
    observations, gradients = model.replay_buffer.rows_at(np.arange(BATCH)).observations, []
    for _ in range(2):
        model.q_net.zero_grad()
        model.q_net(observations).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.q_net.parameters()])
        attachment.detach()
    for own, other in zip(*gradients, strict=True):
        assert torch.equal(own, other)


class OwnPasses(BaseCallback):
    """Differentiates the networks at a batch of its own after every update."""

    def _on_step(self) -> bool:
        if self.num_timesteps > 45:
            observations = self.model.replay_buffer.rows_at(np.arange(BATCH)).observations
            generator_state = torch.get_rng_state()
            for outputs in self.passes(observations):
                outputs.sum().backward()
            torch.set_rng_state(generator_state)
        return True

    def passes(self, observations):
        model = self.model
        if isinstance(model, DQN):
            with torch.no_grad():
                model.q_net_target(observations)
            yield model.q_net(observations)
            self.gradient = [p.grad.clone() for p in model.q_net.parameters()]
        else:
            yield model.actor(observations)
            yield sum(model.critic(observations, torch.zeros(BATCH, 1)))
            if isinstance(model, SAC):
                yield model.actor.action_log_prob(observations)[1]


@pytest.mark.parametrize("sampler", [Adaptive(nu=1.0, floor=0.3), Prioritized(weight_exponent_end=None)])
@pytest.mark.parametrize("kind", [DQN, SAC, TD3])
def test_a_pass_of_a_callback_is_not_the_losses(kind, sampler) -> None:
    """It has the batch's number of rows; TD3 does not train its actor in every update."""
    runs = []
    for callback in (None, OwnPasses()):
        model = make(kind, sampler)
        attach(model)
        model.learn(80, callback=callback)
        selection = model.replay_buffer.selection
        selection.settle()
        runs.append([*model.policy.parameters(), selection.sampler.probabilities()])
    for own, other in zip(*runs, strict=True):
        assert torch.equal(own, other)


def test_the_gradient_of_a_pass_of_ones_own_is_not_weighted() -> None:
    model = make(DQN, Adaptive(nu=1.0, floor=0.3))
    attach(model)
    model.learn(80)
    observations, gradients = model.replay_buffer.rows_at(np.arange(BATCH)).observations, []
    for _ in range(2):
        model.q_net.zero_grad()
        model.q_net(observations).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.q_net.parameters()])
        model.replay_buffer.discard()
    for own, other in zip(*gradients, strict=True):
        assert torch.equal(own, other)


def test_weights_need_an_attachment_even_without_feedback() -> None:
    """A sampler that reports nothing, and whose losses would not be weighted."""
    geometric = Geometric(mean_age=20, unbiased=True, floor=0.1)
    with pytest.raises(RuntimeError, match="Geometric got no feedback on the last batch: attach it"):
        make(SAC, geometric).learn(60)
    make(SAC, Uniform()).learn(60)
    model = make(SAC, geometric)
    attachment = attach(model)
    model.learn(60)
    assert model.replay_buffer.selection.last.weights.std() > 0
    attachment.detach()
    with pytest.raises(RuntimeError, match="attach it to the model"):
        model.learn(60)


@pytest.mark.parametrize("updates", [0, 1])
def test_balanced_networks_go_on_after_loading(updates, tmp_path) -> None:
    """An update without the actor gives no feedback, also if it is the first one after loading."""
    model = make(TD3, Adaptive(networks="balanced", nu=1.0, overwrite="fifo"), policy_delay=2)
    attach(model)
    model.learn(80 + updates)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = TD3.load(tmp_path / "model", env=model.get_env(), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    attach(again)
    probabilities = []
    for one in (model, again):
        one._setup_learn(1, None, reset_num_timesteps=False)
        torch.manual_seed(0)
        one.train(1, BATCH)
        one.replay_buffer.selection.settle()
        probabilities.append(one.replay_buffer.selection.sampler.probabilities())
    assert torch.equal(*probabilities)


def test_an_emptied_buffer_infers_the_length_again_and_measures_again() -> None:
    model = make(DQN, Prioritized())
    attachment = attach(model, measure_every=20)
    model.learn(90)
    assert model.replay_buffer.selection.total_updates == 50
    assert "captured_fraction" in attachment.metrics()
    model.replay_buffer.reset()
    model.learn(70)
    assert model.replay_buffer.selection.total_updates == 30
    assert "captured_fraction" in attachment.metrics()


def test_a_buffer_that_is_loaded_is_checked_and_connected(tmp_path) -> None:
    for name, sampler, options in [("discount", Uniform(), {"n_steps": 3, "gamma": 0.5}), ("empty", Prioritized(), {})]:
        make(DQN, sampler, options).save_replay_buffer(tmp_path / name)
    model = make(DQN, Uniform(), learning_starts=0)
    attach(model)
    model.load_replay_buffer(tmp_path / "discount")
    with pytest.raises(UserError, match=r"gamma is 0.99 in the model and 0.5 in its replay buffer"):
        model.learn(80)
    model.exploration_schedule = lambda _: 0.0  # the network acts before the first transition is stored
    model.load_replay_buffer(tmp_path / "empty")
    model.learn(20)
    assert model.replay_buffer.selection.total_updates == 20
