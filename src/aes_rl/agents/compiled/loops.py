"""Compiled loops between the matrix products of an update.

All arrays are C-contiguous float32. A network of K copies serves P members; K/P consecutive copies belong to one member
(the twin critics) and read the same inputs. Rows are positions in a batch, or in several batches one after the other.
`head` is an actor's output. `of_x` is the derivative of the loss with respect to x. Members `first` to `last` do not
include `last`.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import math

import numpy as np
from numba import njit

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_LOWEST_LOG_DEVIATION, _HIGHEST_LOG_DEVIATION = np.float32(-20), np.float32(2)
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, np.float32(1e-8)

# Sums may be reordered, which vectorises them; NaN and infinities keep their meaning.
_compiled = njit(cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")


@_compiled
def copy_columns(source, source_row, source_column, width, out, out_row, out_column, count):
    """Copy `count` rows of `width` columns of every member to the rows of its network copies."""
    copies_per_member = out.shape[0] // source.shape[0]
    for copy in range(out.shape[0]):
        for row in range(count):
            from_row = source[copy // copies_per_member, source_row + row]
            to_row = out[copy, out_row + row]
            for column in range(width):
                to_row[out_column + column] = from_row[source_column + column]


@_compiled
def add_bias(output, width, bias, has_relu):
    """Add a layer's bias to the first `width` columns of its output, and apply ReLU."""
    for copy in range(output.shape[0]):
        own = bias[copy, 0]
        for row in range(output.shape[1]):
            values = output[copy, row]
            if has_relu:
                for column in range(width):
                    value = values[column] + own[column]
                    values[column] = value if value > _ZERO else _ZERO
            else:
                for column in range(width):
                    values[column] += own[column]


@_compiled
def single_output(hidden, bias, weight, last_bias, output):
    """Add the bias and apply ReLU to the last hidden layer, and compute the one output of the layer after it."""
    for copy in range(hidden.shape[0]):
        own, output_weight = bias[copy, 0], weight[copy]
        for row in range(hidden.shape[1]):
            values = hidden[copy, row]
            total = _ZERO
            for column in range(own.shape[0]):
                value = values[column] + own[column]
                value = value if value > _ZERO else _ZERO
                values[column] = value
                total += value * output_weight[column, 0]
            output[copy, row, 0] = total + last_bias[copy, 0, 0]


@_compiled
def single_output_gradient(gradient, hidden, weight, trained, of_hidden, of_weight, of_bias, norms, first, last):
    """The gradient of a layer with one output: of the hidden layer before it, and of its parameters.

    Only the first `trained` rows contribute to the parameters' gradient. For members `first` to `last`, adds the
    layer's part of the squared norm of each row's gradient to `norms`.
    """
    copies_per_member = gradient.shape[0] // norms.shape[0]
    for copy in range(gradient.shape[0]):
        member = copy // copies_per_member
        weights, sums = weight[copy], of_weight[copy]
        sums[:] = _ZERO
        of_bias[copy, 0, 0] = _ZERO
        for row in range(gradient.shape[1]):
            slope = gradient[copy, row, 0]
            values, own = hidden[copy, row], of_hidden[copy, row]
            for column in range(own.shape[0]):
                own[column] = slope * weights[column, 0] if values[column] > _ZERO else _ZERO
            if row < trained:
                square = _ZERO
                for column in range(own.shape[0]):
                    sums[column, 0] += slope * values[column]
                    square += values[column] * values[column]
                of_bias[copy, 0, 0] += slope
                if first <= member < last:
                    norms[member, row] += slope * slope * (square + _ONE)


@_compiled
def layer_gradient(gradient, count, output, has_relu, inputs, trained, of_bias, norms, first, last):
    """Apply ReLU's derivative to the gradient of a layer's output, in place; compute the gradient of its bias.

    Only the first `trained` rows contribute to the bias's gradient. For members `first` to `last`, adds the layer's
    part of the squared norm of each row's gradient to `norms`: (‖inputs‖² + 1) · ‖gradient‖².
    """
    copies_per_member = gradient.shape[0] // norms.shape[0]
    for copy in range(gradient.shape[0]):
        member = copy // copies_per_member
        sums = of_bias[copy, 0]
        sums[:] = _ZERO
        for row in range(count):
            own = gradient[copy, row]
            if has_relu:
                values = output[copy, row]
                for column in range(own.shape[0]):
                    own[column] = own[column] if values[column] > _ZERO else _ZERO
            if row < trained:
                for column in range(own.shape[0]):
                    sums[column] += own[column]
                if first <= member < last:
                    share, coefficient, layer_input = _ZERO, _ONE, inputs[copy, row]
                    for column in range(own.shape[0]):
                        share += own[column] * own[column]
                    for column in range(layer_input.shape[0]):
                        coefficient += layer_input[column] * layer_input[column]
                    norms[member, row] += share * coefficient


@_compiled
def undo_weights(weights, norms):
    """Turn the squared norms of the terms (w/B)·g of a weighted mean into those of g: multiply by (B/w)²."""
    size = np.float32(weights.shape[1])
    for member in range(weights.shape[0]):
        for position in range(weights.shape[1]):
            factor = size / weights[member, position]
            norms[member, position] *= factor * factor


@_compiled
def critic_objective(values, next_value, rows, weights, discount, reward_scale, gradient, td_error, loss):
    """The critics' loss, its derivative with respect to their values, and the absolute TD error."""
    members, batch, width = rows.shape
    copies = values.shape[0] // members
    for member in range(members):
        loss[member] = _ZERO
        for position in range(batch):
            # The last two columns of a row are the reward and whether the state after it is terminal.
            target = reward_scale * rows[member, position, width - 2]
            target += discount * (_ONE - rows[member, position, width - 1]) * next_value[member, position]
            weight = weights[member, position] / np.float32(batch)
            absolute = _ZERO
            for copy in range(copies * member, copies * (member + 1)):
                error = values[copy, position, 0] - target
                gradient[copy, position, 0] = _TWO * weight * error
                loss[member] += weight * error * error
                absolute += abs(error)
            td_error[member, position] = absolute / np.float32(copies)


@_compiled
def value_objective(values, target, weights, gradient, loss):
    """The loss of the state-value function, and its derivative with respect to the values."""
    for member in range(weights.shape[0]):
        loss[member] = _ZERO
        for position in range(weights.shape[1]):
            weight = weights[member, position] / np.float32(weights.shape[1])
            error = values[member, position, 0] - target[member, position]
            gradient[member, position, 0] = _TWO * weight * error
            loss[member] += weight * error * error


@_compiled
def deterministic_objective(values, first_row, weights, gradient, loss):
    """The deterministic actor's loss −Q(s, π(s)), and its derivative with respect to the value Q."""
    for member in range(weights.shape[0]):
        loss[member] = _ZERO
        for position in range(weights.shape[1]):
            weight = weights[member, position] / np.float32(weights.shape[1])
            gradient[member, first_row + position, 0] = -weight
            loss[member] -= weight * values[member, first_row + position, 0]


@_compiled
def stochastic_objective(
    values, first_row, log_probability, weights, log_temperature, target_entropy, gradient, loss, slope
):
    """The stochastic actor's loss, and its derivative with respect to both critics' values of its action.

    `slope` is the derivative of the temperature's loss with respect to the log temperature.
    """
    for member in range(weights.shape[0]):
        temperature = np.float32(math.exp(log_temperature[member, 0]))
        one, other = 2 * member, 2 * member + 1
        loss[member] = _ZERO
        slope[member, 0] = _ZERO
        for position in range(weights.shape[1]):
            weight = weights[member, position] / np.float32(weights.shape[1])
            first_value = values[one, first_row + position, 0]
            second_value = values[other, first_row + position, 0]
            share = _HALF if first_value == second_value else (_ONE if first_value < second_value else _ZERO)
            gradient[one, first_row + position, 0] = -weight * share
            gradient[other, first_row + position, 0] = -weight * (_ONE - share)
            log = log_probability[member, position]
            loss[member] += weight * (temperature * log - min(first_value, second_value))
            slope[member, 0] += weight * (-target_entropy - log)


@_compiled
def soft_value(values, first_row, log_probability, log_row, log_temperature, out):
    """The smaller value of the two critics minus temperature · log probability of the action."""
    for member in range(out.shape[0]):
        temperature = np.float32(math.exp(log_temperature[member, 0]))
        for position in range(out.shape[1]):
            one, other = values[2 * member, first_row + position, 0], values[2 * member + 1, first_row + position, 0]
            out[member, position] = min(one, other) - temperature * log_probability[member, log_row + position]


@_compiled
def squash(head, noise, epsilon, action, deviation, log_probability):
    """The tanh of a Gaussian sample and its log density, as `aes_rl.agents.sac.squash`; rows of batch k use noise k."""
    members, rows, width = head.shape
    actions, batch = width // 2, noise.shape[1]
    constant = np.float32(actions * 0.5 * math.log(2 * math.pi))
    for member in range(members):
        for row in range(rows):
            log = -constant
            for column in range(actions):
                normal = noise[member, row % batch, row // batch, column]
                log_deviation = head[member, row, actions + column]
                log_deviation = min(max(log_deviation, _LOWEST_LOG_DEVIATION), _HIGHEST_LOG_DEVIATION)
                spread = np.float32(math.exp(log_deviation))
                raw = head[member, row, column] + spread * normal
                squashed = np.float32(math.tanh(raw))
                log -= log_deviation + _HALF * normal * normal
                if epsilon > _ZERO:
                    log -= np.float32(math.log(_ONE - squashed * squashed + epsilon))
                else:  # log(1 − tanh²) = 2·(log 2 − |raw| − log(1 + exp(−2·|raw|))), which is numerically stable
                    size = abs(raw)
                    log -= _TWO * (np.float32(math.log(2)) - size - np.float32(math.log1p(math.exp(-_TWO * size))))
                action[member, row, column] = squashed
                deviation[member, row, column] = spread
            log_probability[member, row] = log


@_compiled
def policy_gradient(
    of_action, head, action, deviation, noise, weights, log_temperature, epsilon, regularization, of_head, loss
):
    """The derivative of the actor's loss with respect to its output; adds the penalty on that output to the loss.

    `of_action` is the derivative with respect to the action through each of the two critics.
    """
    members, batch, width = of_head.shape
    actions = width // 2
    for member in range(members):
        temperature = np.float32(math.exp(log_temperature[member, 0]))
        for position in range(batch):
            weight = weights[member, position] / np.float32(batch)
            of_log = weight * temperature
            penalty = _TWO * weight * regularization / np.float32(actions)
            for column in range(actions):
                squashed = action[member, position, column]
                tanh_derivative = _ONE - squashed * squashed
                of_raw = of_action[2 * member, position, column] + of_action[2 * member + 1, position, column]
                of_raw = of_raw * tanh_derivative + _TWO * of_log * squashed * (
                    tanh_derivative / (tanh_derivative + epsilon) if epsilon else _ONE
                )
                mean, log_deviation = head[member, position, column], head[member, position, actions + column]
                of_head[member, position, column] = of_raw + penalty * mean
                is_inside = _LOWEST_LOG_DEVIATION <= log_deviation <= _HIGHEST_LOG_DEVIATION
                of_deviation = of_raw * deviation[member, position, column] * noise[member, position, 0, column]
                of_deviation += penalty * log_deviation - of_log
                of_head[member, position, actions + column] = of_deviation if is_inside else _ZERO
                if regularization:
                    log_deviation = min(max(log_deviation, _LOWEST_LOG_DEVIATION), _HIGHEST_LOG_DEVIATION)
                    loss[member] += _HALF * penalty * (mean * mean + log_deviation * log_deviation)


@_compiled
def tanh(head, action):
    """The action of a deterministic policy."""
    for member in range(head.shape[0]):
        for row in range(head.shape[1]):
            for column in range(head.shape[2]):
                action[member, row, column] = math.tanh(head[member, row, column])


@_compiled
def tanh_gradient(of_action, action, of_head):
    """The derivative of the loss with respect to the output of a deterministic policy."""
    for member in range(of_head.shape[0]):
        for row in range(of_head.shape[1]):
            for column in range(of_head.shape[2]):
                squashed = action[member, row, column]
                of_head[member, row, column] = of_action[member, row, column] * (_ONE - squashed * squashed)


@_compiled
def explore(head, noise, action):
    """The exploring action of a stochastic policy: the tanh of a Gaussian sample."""
    members, actions = action.shape
    for member in range(members):
        for column in range(actions):
            log_deviation = head[member, 0, actions + column]
            log_deviation = min(max(log_deviation, _LOWEST_LOG_DEVIATION), _HIGHEST_LOG_DEVIATION)
            raw = head[member, 0, column] + np.float32(math.exp(log_deviation)) * noise[member, column]
            action[member, column] = math.tanh(raw)


@_compiled
def explore_around(head, noise, pull, scale, state, action):
    """The exploring action of a deterministic policy: its action plus Ornstein–Uhlenbeck noise, within [−1, 1]."""
    members, actions = action.shape
    for member in range(members):
        for column in range(actions):
            state[member, column] += scale * noise[member, column] - pull * state[member, column]
            value = np.float32(math.tanh(head[member, 0, column])) + state[member, column]
            action[member, column] = min(max(value, -_ONE), _ONE)


@_compiled
def adam(block, gradient, mean, square, steps, learning_rate, weight_decay, target, target_rate):
    """One Adam step for a block of parameters; then the target network, unless it is empty, moves towards them."""
    steps[0] += _ONE
    rate = np.float32(learning_rate / (1 - _BETA_1 ** steps[0]))
    correction = np.float32(1 / math.sqrt(1 - _BETA_2 ** steps[0]))
    keep_mean, keep_square = np.float32(_BETA_1), np.float32(_BETA_2)
    take_mean, take_square = np.float32(1 - _BETA_1), np.float32(1 - _BETA_2)
    decay, towards = np.float32(weight_decay), np.float32(target_rate)
    has_target = target.shape[0] > 0
    for element in range(block.shape[0]):
        slope = gradient[element] + decay * block[element]
        new_mean = keep_mean * mean[element] + take_mean * slope
        new_square = keep_square * square[element] + take_square * slope * slope
        value = block[element] - rate * new_mean / (np.sqrt(new_square) * correction + _EPSILON)
        mean[element], square[element], block[element] = new_mean, new_square, value
        if has_target:
            target[element] += towards * (value - target[element])
