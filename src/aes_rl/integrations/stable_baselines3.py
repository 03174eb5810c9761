"""Samplers for Stable-Baselines3: replay buffer classes, and `attach` for DQN, SAC, TD3 and DDPG, QR-DQN and TQC.

    model = SAC("MlpPolicy", env, replay_buffer_class=SelectiveReplayBuffer)
    attach(model)
    model.learn(100_000)

The training step of the library is not changed.
"""

from aes_rl.errors import UserError
from aes_rl.integrations.stable_baselines3_buffers import SelectiveDictReplayBuffer, SelectiveReplayBuffer
from aes_rl.integrations.stable_baselines3_models import (
    AbstractModelAttachment,
    DQNAttachment,
    SACAttachment,
    TD3Attachment,
)

# isort: split
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

__all__ = ["SelectiveDictReplayBuffer", "SelectiveReplayBuffer", "attach"]

_KINDS: dict[type[OffPolicyAlgorithm], type[AbstractModelAttachment]]
_KINDS = {DQN: DQNAttachment, SAC: SACAttachment, TD3: TD3Attachment, DDPG: TD3Attachment}


def attach(
    model: OffPolicyAlgorithm, measure_every: int | None = None, *, clips_errors: bool | None = None
) -> AbstractModelAttachment:
    """Weight the losses of a model and give the sampler the gradient norms and TD errors of every batch.

    What `metrics` of the result returns is added to the model's log, with the prefix "selection/".

    Args:
        model: DQN, SAC, TD3, DDPG, or QR-DQN or TQC of sb3-contrib, made with
            `replay_buffer_class=SelectiveReplayBuffer`.
        measure_every: Number of updates after which the next log also measures the captured fraction; None for never.
        clips_errors: Only for DQN: whether the TD errors given to the sampler are clipped to [−1, 1], as its Huber loss
            clips their gradient. True by default.
    """
    kind = _attachment_for(model)
    if isinstance(model, DQN):
        return DQNAttachment(model, measure_every, clips_errors is not False)
    if clips_errors is not None:
        raise UserError(
            f"clips_errors is {clips_errors}, and the loss of {type(model).__name__} does not clip its TD errors; omit "
            "clips_errors"
        )
    return kind(model, measure_every)


def _attachment_for(model: OffPolicyAlgorithm) -> type[AbstractModelAttachment]:
    kinds = dict(_KINDS)
    if any(base.__module__.split(".")[0] == "sb3_contrib" for base in type(model).__mro__):
        from aes_rl.integrations import stable_baselines3_quantiles as contrib

        kinds |= {contrib.QRDQN: contrib.QRDQNAttachment, contrib.TQC: contrib.TQCAttachment}
        if isinstance(model, contrib.CrossQ):
            raise TypeError(
                "CrossQ cannot be attached: its BatchNorm layers make the loss of a sample depend on the whole batch, "
                "so there is no gradient per sample; use SAC or TQC"
            )
    for kind, attachment in kinds.items():
        if isinstance(model, kind) and type(model).train is kind.train:
            return attachment
    names = ", ".join(kind.__name__ for kind in kinds)
    raise TypeError(
        f"{type(model).__name__} cannot be attached; supported are {names}, and subclasses that do not override train()"
    )
