"""The steps of the eight MuJoCo tasks, each a loop over environments.

Every function computes what the `step` of one of Gymnasium's classes computes, in the same order and precision, so that
observations and rewards agree to the last bit. The traps: NumPy's order of summation; costs of actions are float32;
NumPy's power of a scalar is the C library's `pow`; NumPy's norm is a dot product of BLAS.
"""

import math

import numpy as np
from numba import njit

from aes_rl.training.vector.compiled.libmujoco import (
    float32_at,
    float64_at,
    fused_multiply_add,
    int64_at,
    mj_rnePostConstraint,
    mj_step,
)

_CLIP = 10.0
"""Largest velocity in the observations of Hopper, Walker2d and InvertedDoublePendulum."""
_MOST_ANGLE = 0.2
"""InvertedPendulum terminates beyond it."""
_LEAST_HEIGHT = 1.0
"""InvertedDoublePendulum terminates at it and below."""
MOST_SUMMED = 128
"""NumPy sums longer vectors in another order."""


@njit(cache=True)
def sum_of_squares(vector):
    """`np.sum(np.square(vector))` of at most 128 numbers, in NumPy's order and in the vector's precision."""
    count = vector.shape[0]
    if count < 8:
        total = vector[0] * vector[0]
        for i in range(1, count):
            total += vector[i] * vector[i]
        return total
    parts = vector[:8] * vector[:8]
    whole = count - count % 8
    for start in range(8, whole, 8):
        for i in range(8):
            parts[i] += vector[start + i] * vector[start + i]
    total = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
    for i in range(whole, count):
        total += vector[i] * vector[i]
    return total


@njit(cache=True)
def dot_with_itself(x, y, z, is_fused):
    """Dot product of a vector of three with itself, as BLAS computes it with or without fused multiply-add."""
    if is_fused:
        return fused_multiply_add(z, z, fused_multiply_add(y, y, x * x))  # type: ignore[call-arg]
    return (x * x + y * y) + z * z


@njit(cache=True)
def _clipped(value, low, high):
    return low if value < low else (high if value > high else value)


@njit(cache=True)
def _simulate(task, environment):
    """Scale the action to the task's bounds and let the simulator take its frames. Returns the scaled action."""
    action = float32_at(environment.step_action, task.nu)
    middle, half_width = float32_at(task.action_middle, task.nu), float32_at(task.action_half_width, task.nu)
    scaled, control = float32_at(task.action_scaled, task.nu), float64_at(environment.ctrl, task.nu)
    for i in range(task.nu):
        scaled[i] = middle[i] + half_width[i] * action[i]
        control[i] = scaled[i]
    for _ in range(task.frames):
        mj_step(environment.model, environment.data)
    return scaled


@njit(cache=True)
def _copied(source, first, target, position):
    """Append the elements of `source` from `first` on to an observation; returns its new length."""
    for i in range(first, source.shape[0]):
        target[position] = source[i]
        position += 1
    return position


@njit(cache=True)
def _copied_clipped(source, target, position):
    for i in range(source.shape[0]):
        target[position] = _clipped(source[i], -_CLIP, _CLIP)
        position += 1
    return position


@njit(cache=True)
def _control_cost(task, action):
    """Its precision is float32, that of the action."""
    return np.float32(task.control_weight) * sum_of_squares(action)


@njit(cache=True)
def _finish_walk(task, environment, velocity, costs, is_healthy):
    """Reward and termination of the tasks that are paid for speed and for staying healthy."""
    alive = task.healthy_reward if is_healthy else task.unhealthy_reward
    environment.exact_reward = (task.forward_weight * velocity + alive) - costs
    environment.has_terminated = task.terminates and not is_healthy


@njit(cache=True)
def half_cheetah(tasks, environments):
    """`HalfCheetahEnv.step`."""
    task = tasks[0]
    for environment in environments:
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        before = positions[0]
        action = _simulate(task, environment)
        velocity = (positions[0] - before) / task.dt
        seen = float64_at(environment.exact_observation, task.observation_size)
        end = _copied(positions, task.first_position, seen, 0)
        _copied(velocities, 0, seen, end)
        environment.exact_reward = task.forward_weight * velocity - _control_cost(task, action)
        environment.has_terminated = False


@njit(cache=True)
def hopper(tasks, environments):
    """`HopperEnv.step`."""
    task = tasks[0]
    for environment in environments:
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        velocity, action = _walk(task, environment, positions, velocities)
        is_healthy = task.low_height < positions[1] < task.high_height
        is_healthy &= task.low_angle < positions[2] < task.high_angle
        for i in range(2, task.nq):
            is_healthy &= task.low_state < positions[i] < task.high_state
        for i in range(task.nv):
            is_healthy &= task.low_state < velocities[i] < task.high_state
        _finish_walk(task, environment, velocity, _control_cost(task, action), is_healthy)


@njit(cache=True)
def walker2d(tasks, environments):
    """`Walker2dEnv.step`."""
    task = tasks[0]
    for environment in environments:
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        velocity, action = _walk(task, environment, positions, velocities)
        is_healthy = task.low_height < positions[1] < task.high_height
        is_healthy &= task.low_angle < positions[2] < task.high_angle
        _finish_walk(task, environment, velocity, _control_cost(task, action), is_healthy)


@njit(cache=True)
def _walk(task, environment, positions, velocities):
    """Frames and observation of Hopper and Walker2d. Returns the forward velocity and the scaled action."""
    before = positions[0]
    action = _simulate(task, environment)
    velocity = (positions[0] - before) / task.dt
    seen = float64_at(environment.exact_observation, task.observation_size)
    end = _copied(positions, task.first_position, seen, 0)
    _copied_clipped(velocities, seen, end)
    return velocity, action


@njit(cache=True)
def ant(tasks, environments):
    """`AntEnv.step`."""
    task = tasks[0]
    forces = np.empty(6 * task.nbody)
    for environment in environments:
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        bodies = float64_at(environment.xpos, 3 * task.nbody)
        before = bodies[3 * task.body]
        action = _simulate(task, environment)
        mj_rnePostConstraint(environment.model, environment.data)
        velocity = (bodies[3 * task.body] - before) / task.dt
        external = float64_at(environment.cfrc_ext, 6 * task.nbody)
        for i in range(6 * task.nbody):
            forces[i] = _clipped(external[i], task.low_contact, task.high_contact)
        seen = float64_at(environment.exact_observation, task.observation_size)
        end = _copied(positions, task.first_position, seen, 0)
        end = _copied(velocities, 0, seen, end)
        _copied(forces, task.first_force, seen, end)
        is_healthy = task.low_height <= positions[2] <= task.high_height
        for i in range(task.nq):
            is_healthy &= math.isfinite(positions[i])
        for i in range(task.nv):
            is_healthy &= math.isfinite(velocities[i])
        costs = _control_cost(task, action) + task.contact_weight * sum_of_squares(forces)
        _finish_walk(task, environment, velocity, costs, is_healthy)


@njit(cache=True)
def _centre_of_mass(task, environment):
    """Its x coordinate."""
    masses, centres = float64_at(task.body_mass, task.nbody), float64_at(environment.xipos, 3 * task.nbody)
    total = 0.0
    for body in range(task.nbody):
        total += masses[body] * centres[3 * body]
    return total / task.total_mass


@njit(cache=True)
def humanoid(tasks, environments):
    """`HumanoidEnv.step`."""
    task = tasks[0]
    for environment in environments:
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        forces = float64_at(environment.cfrc_ext, 6 * task.nbody)
        before = _centre_of_mass(task, environment)
        _simulate(task, environment)
        mj_rnePostConstraint(environment.model, environment.data)
        velocity = (_centre_of_mass(task, environment) - before) / task.dt
        seen = float64_at(environment.exact_observation, task.observation_size)
        end = _copied(positions, task.first_position, seen, 0)
        end = _copied(velocities, 0, seen, end)
        end = _copied(float64_at(environment.cinert, 10 * task.nbody), task.first_inertia, seen, end)
        end = _copied(float64_at(environment.cvel, 6 * task.nbody), task.first_velocity, seen, end)
        end = _copied(float64_at(environment.qfrc_actuator, task.nv), task.first_actuator_force, seen, end)
        _copied(forces, task.first_force, seen, end)
        contact_cost = _clipped(task.contact_weight * sum_of_squares(forces), task.low_contact, task.high_contact)
        costs = task.control_weight * sum_of_squares(float64_at(environment.ctrl, task.nu)) + contact_cost
        is_healthy = task.low_height < positions[2] < task.high_height
        _finish_walk(task, environment, velocity, costs, is_healthy)


@njit(cache=True)
def inverted_pendulum(tasks, environments):
    """`InvertedPendulumEnv.step`."""
    task = tasks[0]
    for environment in environments:
        _simulate(task, environment)
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        seen = float64_at(environment.exact_observation, task.observation_size)
        end = _copied(positions, 0, seen, 0)
        _copied(velocities, 0, seen, end)
        has_fallen = abs(seen[1]) > _MOST_ANGLE
        for i in range(task.observation_size):
            has_fallen |= not math.isfinite(seen[i])
        environment.exact_reward = task.unhealthy_reward if has_fallen else task.healthy_reward
        environment.has_terminated = has_fallen


@njit(cache=True)
def inverted_double_pendulum(tasks, environments):
    """`InvertedDoublePendulumEnv.step`."""
    task = tasks[0]
    two = task.two  # a constant 2 would be compiled to a product, which may differ from `pow` in the last bit
    for environment in environments:
        _simulate(task, environment)
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        seen = float64_at(environment.exact_observation, task.observation_size)
        seen[0] = positions[0]
        angles = task.nq - 1
        for i in range(angles):
            seen[1 + i], seen[1 + angles + i] = math.sin(positions[1 + i]), math.cos(positions[1 + i])
        end = _copied_clipped(velocities, seen, 1 + 2 * angles)
        _copied_clipped(float64_at(environment.qfrc_constraint, task.seen_forces), seen, end)
        tip = float64_at(environment.site_xpos, 3)
        has_fallen = tip[2] <= _LEAST_HEIGHT
        distance = 0.01 * math.pow(tip[0], two) + math.pow(tip[2] - 2, two)
        speed = 1e-3 * math.pow(velocities[1], two) + 5e-3 * math.pow(velocities[2], two)
        alive = task.unhealthy_reward if has_fallen else task.healthy_reward
        environment.exact_reward = (alive - distance) - speed
        environment.has_terminated = has_fallen


@njit(cache=True)
def _reach(task, environment):
    """Vector from the target to the fingertip."""
    bodies = float64_at(environment.xpos, 3 * task.nbody)
    finger, target = 3 * task.body, 3 * task.target
    return (
        bodies[finger] - bodies[target],
        bodies[finger + 1] - bodies[target + 1],
        bodies[finger + 2] - bodies[target + 2],
    )


@njit(cache=True)
def reacher(tasks, environments):
    """`ReacherEnv.step`."""
    task = tasks[0]
    for environment in environments:
        before = _reach(task, environment)
        action = _simulate(task, environment)
        after = _reach(task, environment)
        positions, velocities = float64_at(environment.qpos, task.nq), float64_at(environment.qvel, task.nv)
        seen = float64_at(environment.exact_observation, task.observation_size)
        for i in range(2):
            seen[i], seen[2 + i] = math.cos(positions[i]), math.sin(positions[i])
        end = _copied(positions, 2, seen, 4)
        end = _copied(velocities[:2], 0, seen, end)
        for i in range(task.seen_coordinates):
            seen[end + i] = after[i]
        x, y, z = before if task.is_rewarded_before else after
        distance = math.sqrt(dot_with_itself(x, y, z, task.is_dot_fused))
        environment.exact_reward = -distance * task.distance_weight - _control_cost(task, action)
        environment.has_terminated = False


@njit(cache=True)
def deliver(tasks, environments):
    """Write the step data of every environment that has stepped; returns how many episodes ended."""
    task, count = tasks[0], 0
    for environment in environments:
        elapsed = int64_at(environment.elapsed_steps, 1)
        elapsed[0] += 1
        float64_at(environment.episode_return, 1)[0] += environment.exact_reward
        is_ended = environment.has_terminated or elapsed[0] >= task.most_steps
        float32_at(environment.step_reward, 1)[0] = environment.exact_reward
        float32_at(environment.step_terminated, 1)[0] = environment.has_terminated
        float32_at(environment.step_ended, 1)[0] = is_ended
        seen = float64_at(environment.exact_observation, task.observation_size)
        _copied(seen, 0, float32_at(environment.step_next_observation, task.observation_size), 0)
        if not is_ended:
            _copied(seen, 0, float32_at(environment.step_observation, task.observation_size), 0)
        count += is_ended
    return count
