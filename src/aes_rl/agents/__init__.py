"""The reference agents: DDPG and SAC for P members."""

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.ddpg import DDPG, DDPGAgent
from aes_rl.agents.sac import SAC, SACAgent
from aes_rl.backends import AbstractBackend, Forms
from aes_rl.streams import Streams
from aes_rl.types import Array

__all__ = ["DDPG", "SAC", "AbstractAgent", "DDPGAgent", "SACAgent", "Update", "make_agent"]

_DDPG = Forms[AbstractAgent](DDPGAgent, loops="aes_rl.agents.compiled.ddpg:make_ddpg")
_SAC = Forms[AbstractAgent](SACAgent, loops="aes_rl.agents.compiled.sac:make_sac")


def make_agent(
    config: DDPG | SAC,
    observation_size: int,
    action_size: int,
    streams: Streams,
    backend: AbstractBackend[Array] | None = None,
) -> AbstractAgent:
    """The agent that a configuration describes, in the form of a backend; without one, as tensor operations."""
    if not isinstance(config, DDPG | SAC):
        raise TypeError(f"{config!r} is not the configuration of an agent; use DDPG or SAC")
    forms = _DDPG if isinstance(config, DDPG) else _SAC
    make = forms.tensors if backend is None else backend.form(forms)
    return make(config, observation_size, action_size, streams)
