"""Copies of an attached model, models that share a logger, and other versions of sb3-contrib."""

import copy
import pickle
import sys

import pytest
import torch
from sb3_contrib import TQC
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.logger import KVWriter, Logger

from aes_rl.errors import UserError
from aes_rl.integrations import hosts
from aes_rl.integrations.stable_baselines3 import SelectiveReplayBuffer, attach


def make(kind):
    return kind(
        "MlpPolicy",
        "CartPole-v1" if kind is DQN else "Pendulum-v1",
        buffer_size=100,
        learning_starts=20,
        batch_size=8,
        train_freq=1,
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=SelectiveReplayBuffer,
        replay_buffer_kwargs={"sampler": "predictive"},
        seed=0,
        device="cpu",
    )


@pytest.mark.parametrize("kind", [DQN, SAC, TD3, TQC])
def test_a_copy_of_an_attached_model_is_refused(kind, tmp_path) -> None:
    """Its hooks would weight the copy with the batches of the original; saving the model is no copy."""
    model = make(kind)
    attachment = attach(model)
    model.learn(30)
    line = r"detach\(\) before copying the model"
    for action in (copy.deepcopy, lambda one: copy.deepcopy(one.policy), lambda one: pickle.dumps(one.policy)):
        with pytest.raises(UserError, match=line):
            action(model)
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy")
    again = kind.load(tmp_path / "model", env=model.get_env(), device="cpu")
    for own, other in zip(model.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(own, other)
    attachment.detach()
    pickle.dumps(model.policy)
    attach(copy.deepcopy(model))


class Written(KVWriter):
    """Keeps the last values that were logged."""

    def write(self, key_values, key_excluded, step=0):
        del key_excluded, step
        self.values = dict(key_values)

    def close(self):
        pass


@pytest.mark.parametrize("is_first_detached_first", [True, False])
def test_models_that_share_a_logger_are_detached_in_either_order(is_first_detached_first) -> None:
    """Each log shows the selection of the model that was trained last."""
    written = Written()
    logger = Logger(None, [written])
    models = [make(DQN), make(SAC)]
    attachments = []
    for model in models:
        model.set_logger(logger)
        attachments.append(attach(model))
    for model, attachment in zip(models, attachments, strict=True):
        model.learn(30, log_interval=None)
        logger.dump(0)
        assert written.values["selection/effective_sample_size"] == attachment.metrics()["effective_sample_size"]
    if not is_first_detached_first:
        attachments.reverse()
    attachments[0].detach()
    assert "dump" in vars(logger)
    attachments[1].detach()
    assert "dump" not in vars(logger)
    logger.dump(0)
    assert not any(name.startswith("selection/") for name in written.values)
    for model in models:
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.policy.modules())
        attach(model)


def test_an_old_sb3_contrib_matters_to_its_own_models_only(monkeypatch) -> None:
    """It may be installed and imported for something else."""
    name = "aes_rl.integrations.stable_baselines3_quantiles"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(name, raising=False)
    installed = hosts.version
    monkeypatch.setattr(hosts, "version", lambda name: "2.0.0" if name == "sb3_contrib" else installed(name))
    attach(make(SAC))
    with pytest.raises(ImportError, match=r"sb3_contrib 2\.0\.0 is installed"):
        attach(make(TQC))
