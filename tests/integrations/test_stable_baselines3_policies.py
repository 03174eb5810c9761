"""Networks of one's own in Stable-Baselines3: what leaves them through another head is weighted, too."""

import pytest
import torch
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC, TD3
from torch import nn
from torch.distributions import Normal

from aes_rl import Adaptive, Prioritized
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach

BATCH = 8
SAMPLERS = {"adaptive": Adaptive(nu=1.0, floor=0.3, overwrite="fifo"), "prioritized": Prioritized()}
NETWORKS = {
    DQN: ["stable_baselines3.dqn.policies.QNetwork"],
    QRDQN: ["sb3_contrib.qrdqn.policies.QuantileNetwork"],
    SAC: ["stable_baselines3.sac.policies.ContinuousCritic", "stable_baselines3.sac.policies.Actor"],
    TQC: ["sb3_contrib.tqc.policies.Critic", "sb3_contrib.tqc.policies.Actor"],
    TD3: ["stable_baselines3.td3.policies.ContinuousCritic", "stable_baselines3.td3.policies.Actor"],
}
ERROR_FACTORS = {DQN: 1.0, SAC: 1.0, TD3: 0.5}
"""The TD error over the gradient of one sample's loss with respect to its only estimate."""


def with_a_head(kind):
    """A network whose outputs are all shifted by a layer that the library does not have."""

    class Headed(kind):
        def __init__(self, observation_space, *arguments, **options):
            super().__init__(observation_space, *arguments, **options)
            self.head = nn.Linear(observation_space.shape[0], 1)

        def forward(self, observation, *actions):
            outputs, shift = super().forward(observation, *actions), self.head(observation)
            if isinstance(outputs, tuple):
                return tuple(output + shift for output in outputs)
            return outputs + shift.reshape(-1, *[1] * (outputs.dim() - 1))

    if hasattr(kind, "get_action_dist_params"):
        del Headed.forward

        def get_action_dist_params(self, observation):
            mean, log_std, options = kind.get_action_dist_params(self, observation)
            return mean + self.head(observation), log_std - self.head_of_std(observation), options

        def __init__(self, observation_space, *arguments, **options):
            kind.__init__(self, observation_space, *arguments, **options)
            self.head, self.head_of_std = (nn.Linear(observation_space.shape[0], 1) for _ in range(2))

        Headed.get_action_dist_params, Headed.__init__ = get_action_dist_params, __init__
    return Headed


def networks_of(model):
    if isinstance(model, DQN | QRDQN):
        return {"critic": model.q_net if isinstance(model, DQN) else model.quantile_net}
    return {"critic": model.critic, "actor": model.actor}


def gradients(model, rows):
    """What the optimizers took in one update."""
    taken, handles = {}, []
    for name, network in networks_of(model).items():
        optimizer = getattr(network, "optimizer", None) or model.policy.optimizer

        def keep(*_, name=name, network=network):
            taken[name] = {own: p.grad.clone() for own, p in network.named_parameters()}

        handles.append(optimizer.register_step_pre_hook(keep))
    model.train(1, rows)
    for handle in handles:
        handle.remove()
    return taken


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_an_update_is_that_of_the_weighted_loss(kind, sampler, monkeypatch) -> None:
    """Against the library's own updates of single samples, without an attachment."""
    for path in NETWORKS[kind]:
        module, name = path.rsplit(".", 1)
        own = getattr(__import__(module, fromlist=[name]), name)
        monkeypatch.setattr(path, with_a_head(own))
    monkeypatch.setattr(Normal, "rsample", lambda own, *_: own.loc + 0.3 * own.scale)
    options = {"target_policy_noise": 0.0, "policy_delay": 1} if kind is TD3 else {}
    options |= {"ent_coef": 0.1} if kind in (SAC, TQC) else {"max_grad_norm": 1e9} if kind in (DQN, QRDQN) else {}
    critics = {} if kind in (DQN, QRDQN) else {"n_critics": 1}
    model = kind(
        "MlpPolicy",
        "CartPole-v1" if kind in (DQN, QRDQN) else "Pendulum-v1",
        learning_rate=0.0,  # the actor's loss is then that of the critics before their step
        buffer_size=100,
        learning_starts=20,
        batch_size=BATCH,
        train_freq=1,
        policy_kwargs={"net_arch": [8], **critics},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": SAMPLERS[sampler]},
        seed=0,
        device="cpu",
        **options,
    )
    attachment = attach(model)
    model.learn(60)
    found = gradients(model, BATCH)
    pending, buffer = model.replay_buffer.selection.pending, model.replay_buffer
    attachment.detach()
    single = []
    for slot in pending.draw.slots[0].numpy():
        buffer.sample = lambda _, env=None, slot=slot: buffer.rows_at(slot[None], env)
        single.append(gradients(model, 1))
    assert sampler == "prioritized" or pending.weights.std() > 1e-3
    for name, parameters in found.items():
        for own, gradient in parameters.items():
            rows = torch.stack([one[name][own] for one in single])
            expected = (pending.weights.reshape(-1, *[1] * (rows.dim() - 1)) * rows).mean(dim=0)
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
        if sampler == "adaptive":
            norms = torch.stack([sum(part.square().sum() for part in one[name].values()) for one in single])
            torch.testing.assert_close(pending.gradient_norm[name], norms, rtol=1e-4, atol=1e-7)
    if sampler == "prioritized" and kind in ERROR_FACTORS:
        errors = torch.stack([one["critic"]["head.bias"].abs().squeeze() for one in single])
        assert errors.max() > 0
        torch.testing.assert_close(pending.td_errors[0], ERROR_FACTORS[kind] * errors, rtol=1e-4, atol=1e-6)
