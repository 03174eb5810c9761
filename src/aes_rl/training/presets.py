"""The paper's hyper-parameters, by agent and task."""

from difflib import get_close_matches
from typing import Literal

from aes_rl import paper
from aes_rl.agents import DDPG, SAC
from aes_rl.errors import UserError
from aes_rl.samplers.adaptive import Adaptive
from aes_rl.training.config import Training
from aes_rl.training.option_groups import AgentName

Preset = Literal["default", "paper"]

_SAC_ADAPTIVE = {
    "Reacher": Adaptive(0.2, 1000.0, 0.7),
    "Walker2d": Adaptive(0.2, 1000.0, 0.7),
    "HalfCheetah": Adaptive(0.2, 1000.0, 0.7),
    "Ant": Adaptive(0.2, 1000.0, 0.8, 0.2),
    "Hopper": Adaptive(0.2, 1000.0, 0.8, 0.2),
    "InvertedDoublePendulum": Adaptive(0.2, 10_000.0, 0.7, 0.2),
    "InvertedPendulum": Adaptive(0.2, 1000.0, 0.7, 0.2),
    "Humanoid": Adaptive(0.1, 10_000.0, 0.7, 0.2),
}


def preset(name: Preset, task: str, agent: AgentName) -> Training:
    """Initial options of a run: this package's defaults, or the paper's for its eight tasks."""
    if name == "default":
        return Training(task=task, agent=agent)
    adaptive = adaptive_of_the_paper(task, agent)
    if adaptive is None:
        matches = get_close_matches(paper.name_of(task), _SAC_ADAPTIVE, 1)
        close = f" (did you mean {matches[0]!r}?)" if matches else ""
        raise UserError(
            f"the paper has no parameters for {task!r}{close}; its tasks are {', '.join(_SAC_ADAPTIVE)}; "
            "--preset default accepts any task"
        )
    return Training(
        task=task,
        agent=agent,
        samplers=("uniform", "prioritized", "adaptive"),
        seeds=paper.SEEDS,
        env_steps=paper.horizon(task, agent),
        sac=SAC(value_function=True, learning_rate=1e-4, policy_regularization=1e-3, warm_up_steps=1000),
        ddpg=DDPG(),
        sampler={"adaptive": adaptive},
    )


def adaptive_of_the_paper(task: str, agent: str) -> Adaptive | None:
    """The paper's AES parameters for a task and agent, if it has any."""
    short = paper.name_of(task)
    if short not in _SAC_ADAPTIVE:
        return None
    return _SAC_ADAPTIVE[short] if agent == "sac" else Adaptive(0.1, 1000.0, 0.9)
