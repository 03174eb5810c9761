"""Which of Gymnasium's classes have a compiled loop, and the settings that the loops read from an environment."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aes_rl.training.vector.compiled import loops
from aes_rl.training.vector.compiled.records import address

Settings: TypeAlias = dict[str, float]
Loop: TypeAlias = Callable[[NDArray[np.void], NDArray[np.void]], object]
_EXACT_TYPES = (bool, int, float)
"""Types that NumPy multiplies by an array in the array's own precision, as the loops do."""


class Task(NamedTuple):
    """A loop, and the values of its task record that depend on the class of an environment."""

    loop: Loop
    settings: Settings


def task_of(environment: Any) -> Task | None:
    """The loop for an environment without wrappers; None unless it is exactly one of Gymnasium's classes."""
    kind = type(environment)
    package, _, module = kind.__module__.rpartition(".")
    name, _, version = module.rpartition("_")
    class_name = "".join(word.capitalize() for word in name.split("_")) + "Env"
    if (package, kind.__name__) != ("gymnasium.envs.mujoco", class_name):
        return None
    if name not in _TASKS or version not in ("v4", "v5"):
        return None
    loop, read = _TASKS[name]
    try:
        settings = read(environment, version == "v4")
    except (AttributeError, KeyError, TypeError, ValueError):  # another version of the class, or unusual options
        return None
    return Task(loop, settings) if all(type(value) in _EXACT_TYPES for value in settings.values()) else None


def _half_cheetah(environment: Any, _is_v4: bool) -> Settings:
    return {
        "forward_weight": environment._forward_reward_weight,
        "control_weight": environment._ctrl_cost_weight,
        "first_position": int(environment._exclude_current_positions_from_observation),
    }


def _healthy(environment: Any, is_v4: bool) -> Settings:
    """What the tasks that end when the robot is unhealthy have in common."""
    terminates, reward = environment._terminate_when_unhealthy, environment._healthy_reward
    return {
        "control_weight": environment._ctrl_cost_weight,
        "healthy_reward": reward,
        "unhealthy_reward": reward if is_v4 and terminates else 0.0,  # v4 pays it in the last step, too
        "terminates": bool(terminates),
        **_range("height", environment._healthy_z_range),
    }


def _range(name: str, limits: tuple[float, float]) -> Settings:
    low, high = limits
    return {f"low_{name}": low, f"high_{name}": high}


def _walk(environment: Any, is_v4: bool) -> Settings:
    own = {
        "forward_weight": environment._forward_reward_weight,
        "first_position": int(environment._exclude_current_positions_from_observation),
    }
    return own | _healthy(environment, is_v4) | _range("angle", environment._healthy_angle_range)


def _hopper(environment: Any, is_v4: bool) -> Settings:
    return _walk(environment, is_v4) | _range("state", environment._healthy_state_range)


def _ant(environment: Any, is_v4: bool) -> Settings:
    if is_v4:
        shows_forces, first_force = environment._use_contact_forces, 0
        own = {"forward_weight": 1.0, "contact_weight": environment._contact_cost_weight if shows_forces else 0.0}
    else:
        shows_forces, first_force = environment._include_cfrc_ext_in_observation, 6
        own = {
            "forward_weight": environment._forward_reward_weight,
            "contact_weight": environment._contact_cost_weight,
        }
    body = "torso" if is_v4 else environment._main_body
    return {
        **own,
        **_healthy(environment, is_v4),
        **_range("contact", environment._contact_force_range),
        "first_position": 2 * int(environment._exclude_current_positions_from_observation),
        "first_force": first_force if shows_forces else 6 * int(environment.model.nbody),
        "body": int(environment.data.body(body).id),
    }


def _humanoid(environment: Any, is_v4: bool) -> Settings:
    model = environment.model
    own = {"total_mass": float(model.body_mass.sum()), "body_mass": address(model.body_mass)}
    bodies = int(model.nbody)
    if is_v4:
        own |= {"contact_weight": 0.0, **_range("contact", (0.0, 0.0))}
    else:
        for name, array, first, size in (
            ("inertia", "cinert", 10, 10 * bodies),
            ("velocity", "cvel", 6, 6 * bodies),
            ("actuator_force", "qfrc_actuator", 6, int(model.nv)),
            ("force", "cfrc_ext", 6, 6 * bodies),
        ):
            is_shown = getattr(environment, f"_include_{array}_in_observation") is True
            own[f"first_{name}"] = first if is_shown else size
        own |= {
            "contact_weight": environment._contact_cost_weight,
            **_range("contact", environment._contact_cost_range),
        }
    return {
        **own,
        **_healthy(environment, is_v4),
        "forward_weight": environment._forward_reward_weight,
        "first_position": 2 * int(environment._exclude_current_positions_from_observation),
    }


def _inverted_pendulum(_environment: Any, is_v4: bool) -> Settings:
    return {"healthy_reward": 1.0, "unhealthy_reward": 1.0 if is_v4 else 0.0}


def _inverted_double_pendulum(environment: Any, is_v4: bool) -> Settings:
    if is_v4:
        return {"healthy_reward": 10.0, "unhealthy_reward": 10.0, "seen_forces": int(environment.model.nv)}
    return {"healthy_reward": environment._healthy_reward, "unhealthy_reward": 0.0, "seen_forces": 1}


def _reacher(environment: Any, is_v4: bool) -> Settings:
    return {
        "distance_weight": 1.0 if is_v4 else environment._reward_dist_weight,
        "control_weight": 1.0 if is_v4 else environment._reward_control_weight,
        "body": int(environment.data.body("fingertip").id),
        "target": int(environment.data.body("target").id),
        "seen_coordinates": 3 if is_v4 else 2,
        "is_rewarded_before": is_v4,
        "is_dot_fused": _is_dot_fused(),
    }


def _is_dot_fused() -> bool:
    """Whether BLAS rounds a product and a sum at once; it does on some processors."""
    vectors = np.random.default_rng(0).normal(size=(100, 3))
    return any(np.dot(own, own) != loops.dot_with_itself(own[0], own[1], own[2], False) for own in vectors)


_TASKS: Mapping[str, tuple[Loop, Callable[[Any, bool], Settings]]] = {
    "ant": (loops.ant, _ant),
    "half_cheetah": (loops.half_cheetah, _half_cheetah),
    "hopper": (loops.hopper, _hopper),
    "humanoid": (loops.humanoid, _humanoid),
    "inverted_double_pendulum": (loops.inverted_double_pendulum, _inverted_double_pendulum),
    "inverted_pendulum": (loops.inverted_pendulum, _inverted_pendulum),
    "reacher": (loops.reacher, _reacher),
    "walker2d": (loops.walker2d, _walk),
}
"""By the names of Gymnasium's modules."""
