"""The reference agents: DDPG and SAC for P members."""

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.ddpg import DDPG, DDPGAgent
from aes_rl.agents.sac import SAC, SACAgent
from aes_rl.streams import Streams

__all__ = ["DDPG", "SAC", "AbstractAgent", "DDPGAgent", "SACAgent", "Update", "make_agent"]


def make_agent(config: DDPG | SAC, observation_size: int, action_size: int, streams: Streams) -> AbstractAgent:
    """The agent that a configuration describes."""
    if isinstance(config, DDPG):
        return DDPGAgent(config, observation_size, action_size, streams)
    if isinstance(config, SAC):
        return SACAgent(config, observation_size, action_size, streams)
    raise TypeError(f"{config!r} is not the configuration of an agent; use DDPG or SAC")
