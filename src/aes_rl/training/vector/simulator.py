"""Gymnasium environments whose state can be saved and restored without pickle."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from aes_rl import paper
from aes_rl.errors import RunError, UserError

if TYPE_CHECKING:
    from gymnasium.envs.mujoco import MujocoEnv

Environment: TypeAlias = gymnasium.Env[NDArray[np.floating], NDArray[np.floating]]
Bounds: TypeAlias = NDArray[np.float32 | np.float64]
_KNOWN_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
"""Wrappers whose only state is the number of steps in the episode."""
_DERIVED = ("xpos", "xipos", "cfrc_ext", "cinert", "cvel")
"""Derived quantities that tasks read before the simulator computes them again."""
_MUJOCO_WARNINGS = threading.Lock()
"""Held while MuJoCo's handler of warnings is another one."""


class Saved(NamedTuple):
    """State of one environment: arrays for the tensor file, the rest for JSON."""

    arrays: dict[str, NDArray[np.float64]]
    facts: dict[str, object]


def make(task: str, **options: Any) -> Environment:
    """The environment of a task; raises unless its observations and actions are vectors, and actions have bounds."""
    try:
        with exits_as_errors(f"task {task!r} ended its process while it was made"), _without_deprecations(task):
            environment = gymnasium.make(task, disable_env_checker=True, **options)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        module = task.partition(":")[0]
        is_own = isinstance(error, ModuleNotFoundError) and ":" in task and f"No module named {module!r}" in str(error)
        hint = f"; if {module}.py is in this directory, add --module {module}" if is_own else ""
        raise UserError(f"task {task!r} cannot be made: {error}{hint}") from error
    except gymnasium.error.Error as error:
        known = sorted(name for name in gymnasium.registry if name.split("-")[0] == paper.name_of(task))
        close = get_close_matches(task, gymnasium.registry, 1)
        hint = "aes-rl train --help lists the paper's tasks"
        if known or close:
            hint = f"there are {', '.join(known)}" if known else f"did you mean {close[0]!r}?"
        raise UserError(f"unknown task {task!r}; {hint}") from error
    actions, observations = environment.action_space, environment.observation_space
    if not isinstance(actions, gymnasium.spaces.Box) or actions.shape is None or len(actions.shape) != 1:
        raise UserError(f"task {task!r} has the action space {actions}; DDPG and SAC need a vector of numbers")
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UserError(f"task {task!r} has unbounded actions; wrap it so that they have finite bounds")
    if not isinstance(observations, gymnasium.spaces.Box) or len(observations.shape) != 1:
        raise UserError(f"task {task!r} has the observation space {observations}; flatten it to a vector first")
    return environment


@contextmanager
def exits_as_errors(message: str) -> Iterator[None]:
    """Turn an environment's SystemExit into an error: the run would end there without a word and with exit code 0."""
    try:
        yield
    except SystemExit as error:
        raise RunError(f"{message} ({error!r})") from error


@contextmanager
def _without_deprecations(task: str) -> Iterator[None]:
    """Drop MuJoCo's warnings about old attributes in Gymnasium's own models: one per environment, not the user's doing.

    MuJoCo has one handler of warnings for all threads, so one of them at a time makes such an environment.
    """
    spec = gymnasium.registry.get(task)
    if spec is None or not str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        yield
        return
    import mujoco

    def show(message: str) -> None:
        if "deprecated" in message:
            return
        if before is not None:
            before(message)
        else:
            print(f"WARNING: {message}", file=sys.stderr)

    with _MUJOCO_WARNINGS:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(show)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def action_scale(environment: Environment) -> tuple[Bounds, Bounds]:
    """Middle and half width of the action bounds: an agent's action a in [−1, 1] becomes middle + half width · a."""
    space = environment.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    return (space.high + space.low) / 2, (space.high - space.low) / 2


def save(environment: Environment) -> Saved | None:
    """Everything that the future of one of Gymnasium's MuJoCo environments depends on; None for any other.

    Other environments and wrappers may have further state, which cannot be read.
    """
    simulated = mujoco_environment_of(environment)
    if simulated is None:
        return None
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.empty(mujoco.mj_stateSize(simulated.model, kind))
    mujoco.mj_getState(simulated.model, simulated.data, numbers, kind)
    arrays = {"simulator": numbers}
    arrays |= {name: getattr(simulated.data, name).copy() for name in _derived(simulated.data)}
    generator = simulated.np_random.bit_generator.state
    time_limit = time_limit_of(environment)
    facts = {
        "generator": {"state": str(generator["state"]["state"]), "increment": str(generator["state"]["inc"])},
        "has_uint32": generator["has_uint32"],
        "uinteger": generator["uinteger"],
        "elapsed_steps": time_limit._elapsed_steps if time_limit else None,
    }
    return Saved(arrays, facts)


def restore(environment: Environment, saved: Saved) -> None:
    """Continue from a saved state, bit for bit."""
    import mujoco

    simulated = mujoco_environment_of(environment)
    if simulated is None:
        raise UserError("the saved state is that of a Gymnasium MuJoCo task, which this task is not")
    environment.reset()
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    shapes = {"simulator": (mujoco.mj_stateSize(simulated.model, kind),)}
    shapes |= {name: getattr(simulated.data, name).shape for name in _derived(simulated.data)}
    for name, shape in shapes.items():
        _require(name, saved.arrays, shape)
    mujoco.mj_setState(simulated.model, simulated.data, saved.arrays["simulator"], kind)
    for name in _derived(simulated.data):
        getattr(simulated.data, name)[...] = saved.arrays[name]
    time_limit: Any = time_limit_of(environment)  # Gymnasium types the count as None, its value before a reset
    try:
        generator = saved.facts["generator"]
        if not isinstance(generator, dict):
            raise TypeError(f"generator is a {type(generator).__name__}")
        simulated.np_random.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": _integer(generator, "state"), "inc": _integer(generator, "increment")},
            "has_uint32": _integer(saved.facts, "has_uint32"),
            "uinteger": _integer(saved.facts, "uinteger"),
        }
        if time_limit is not None:
            time_limit._elapsed_steps = _integer(saved.facts, "elapsed_steps")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"the saved state of an environment cannot be used ({type(error).__name__}: {error})") from None


def _integer(facts: Mapping[str, object], name: str) -> int:
    """A saved integer; those of 128 bits are saved as text."""
    value = facts[name]
    if not isinstance(value, int | str):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return int(value)


def _require(name: str, arrays: dict[str, NDArray[np.float64]], shape: tuple[int, ...]) -> None:
    """Raise unless a saved array has the type and shape of the task's simulator and finite values."""
    if name not in arrays:
        raise UserError(f"the saved state of an environment lacks {name}")
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != shape:
        raise UserError(f"the saved {name} of an environment is {array.dtype} {array.shape}; the task's is {shape}")
    if not np.isfinite(array).all():
        raise UserError(f"the saved {name} of an environment is not finite")


def mujoco_environment_of(environment: Environment) -> "MujocoEnv | None":
    """The environment without its wrappers, if simulator, random generator and time limit are its whole state."""
    inner = environment
    while isinstance(inner, gymnasium.Wrapper):
        if type(inner) not in _KNOWN_WRAPPERS:
            return None
        inner = inner.env
    if not type(inner).__module__.startswith("gymnasium.envs.mujoco."):
        return None
    from gymnasium.envs.mujoco import MujocoEnv

    return inner if isinstance(inner, MujocoEnv) else None


def _derived(data: object) -> list[str]:
    forces = [name for name in dir(data) if name.startswith("qfrc_") and isinstance(getattr(data, name), np.ndarray)]
    return [*_DERIVED, *forces]


def time_limit_of(environment: Environment) -> TimeLimit[NDArray[np.floating], NDArray[np.floating]] | None:
    """The wrapper that counts the steps of an episode, if the task has a limit."""
    wrapper = environment
    while isinstance(wrapper, gymnasium.Wrapper):
        if isinstance(wrapper, TimeLimit):
            return wrapper
        wrapper = wrapper.env
    return None
