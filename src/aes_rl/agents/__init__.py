"""The reference agents: DDPG and SAC for P members."""

from typing import Any

from aes_rl.agents.agent import AbstractAgent, Update
from aes_rl.agents.ddpg import DDPG, DDPGAgent
from aes_rl.agents.sac import SAC, SACAgent
from aes_rl.streams import Streams

__all__ = ["AGENTS", "DDPG", "SAC", "AbstractAgent", "DDPGAgent", "SACAgent", "Update", "make_agent"]

AGENTS: dict[str, Any] = {"ddpg": DDPGAgent, "sac": SACAgent}


def make_agent(config: Any, observation_size: int, action_size: int, streams: Streams) -> AbstractAgent:
    """The agent that a configuration describes."""
    for agent in AGENTS.values():
        if agent.config_type is type(config):
            made: AbstractAgent = agent(config, observation_size, action_size, streams)
            return made
    raise TypeError(f"{config!r} is not the configuration of an agent; use one of {', '.join(AGENTS)}")
