"""Gymnasium environments whose state can be saved and restored without pickle."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from aes_rl import paper
from aes_rl.errors import UserError

_ALSO = ("xpos", "xipos", "cfrc_ext", "cinert", "cvel")
"""Derived quantities that tasks read before the simulator computes them again."""


class Saved(NamedTuple):
    """One environment at one moment: arrays for tensors' files, the rest for JSON."""

    arrays: dict[str, np.ndarray[Any, Any]]
    facts: dict[str, Any]


def make(task: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """The environment of a task; raises unless observations and actions are vectors of bounded numbers."""
    try:
        environment = gymnasium.make(task, disable_env_checker=True, **options)
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise UserError(f"task {task!r} cannot be made: {error}") from error
    except gymnasium.error.Error as error:
        known = sorted(name for name in gymnasium.registry if name.split("-")[0] == paper.name_of(task))
        hint = f"; there are {', '.join(known)}" if known else "; the paper's are listed by aes-rl train --help"
        raise UserError(f"unknown task {task!r}{hint}") from error
    actions, observations = environment.action_space, environment.observation_space
    if not isinstance(actions, gymnasium.spaces.Box) or actions.shape is None or len(actions.shape) != 1:
        raise UserError(f"task {task!r} has the action space {actions}; DDPG and SAC need a vector of numbers")
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UserError(f"task {task!r} has unbounded actions; wrap it so that they lie in a box")
    if not isinstance(observations, gymnasium.spaces.Box) or len(observations.shape) != 1:
        raise UserError(f"task {task!r} has the observation space {observations}; flatten it to a vector first")
    return environment


def save(environment: gymnasium.Env[Any, Any]) -> Saved | None:
    """Everything a MuJoCo environment's future depends on; None for any other, whose state cannot be read."""
    simulated = environment.unwrapped
    if not hasattr(simulated, "data") or not hasattr(simulated, "model"):
        return None
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.empty(mujoco.mj_stateSize(simulated.model, kind))
    mujoco.mj_getState(simulated.model, simulated.data, numbers, kind)
    arrays = {"simulator": numbers}
    arrays |= {name: getattr(simulated.data, name).copy() for name in _derived(simulated.data)}
    generator = simulated.np_random.bit_generator.state
    facts = {
        "generator": {"state": str(generator["state"]["state"]), "increment": str(generator["state"]["inc"])},
        "has_uint32": generator["has_uint32"],
        "uinteger": generator["uinteger"],
        "elapsed_steps": _time_limit(environment)._elapsed_steps,
    }
    return Saved(arrays, facts)


def restore(environment: gymnasium.Env[Any, Any], saved: Saved) -> None:
    """Continue from a saved state, bit for bit."""
    import mujoco

    environment.reset()
    simulated: Any = environment.unwrapped
    mujoco.mj_setState(simulated.model, simulated.data, saved.arrays["simulator"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name in _derived(simulated.data):
        getattr(simulated.data, name)[...] = saved.arrays[name]
    simulated.np_random.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {
            "state": int(saved.facts["generator"]["state"]),
            "inc": int(saved.facts["generator"]["increment"]),
        },
        "has_uint32": saved.facts["has_uint32"],
        "uinteger": saved.facts["uinteger"],
    }
    _time_limit(environment)._elapsed_steps = saved.facts["elapsed_steps"]


def _derived(data: Any) -> list[str]:
    forces = [name for name in dir(data) if name.startswith("qfrc_") and isinstance(getattr(data, name), np.ndarray)]
    return [*_ALSO, *forces]


def _time_limit(environment: gymnasium.Env[Any, Any]) -> Any:
    wrapper: Any = environment
    while not isinstance(wrapper, TimeLimit):
        wrapper = wrapper.env
    return wrapper
