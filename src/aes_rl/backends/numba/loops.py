"""The compiled CPU loops: random numbers, sum tree, placement, rows, validation.

The reference implementation of every function, with tensor operations, is in `aes_rl.backends.torch`.
The tree is descended level by level for the whole batch, so that the memory reads of different draws overlap.
"""

import numpy as np
from numba import njit

from aes_rl.backends.numba.prefetch import prefetch
from aes_rl.streams import FIRST, GOLDEN, SECOND

LEAVES, FAN_OUT = 16, 4
"""Slots per lowest node of the tree, two cache lines of float64, and children of every other node."""
# Unsigned indices avoid a check for negative indices in the compiled code.
_LEAVES, _FAN_OUT = np.uint64(LEAVES), np.uint64(FAN_OUT)
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_LINE = 16
"""Numbers of float32 in a cache line."""
_AHEAD = 12
"""Rows requested before they are copied, as many as the processor can wait for at once."""
FIFO, UNIFORM, ADAPTIVE = 0, 1, 2
"""How the slot to overwrite is chosen when the buffer is full."""

_GOLDEN, _FIRST, _SECOND = np.uint64(GOLDEN), np.uint64(FIRST), np.uint64(SECOND)


@njit(cache=True, inline="always")
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def uniform(keys, counter, out):
    """Fill [P, count] with the numbers of `Streams.uniform`."""
    for member in range(out.shape[0]):
        state = _mix(np.uint64(keys[member]) + np.uint64(counter) * _GOLDEN)
        for element in range(out.shape[1]):
            state += _GOLDEN
            upper = _mix(state) >> np.uint64(12)
            out[member, element] = (2 * np.int64(upper) + 1) * 2.0**-53


@njit(cache=True, inline="always")
def _sum_of_four(row, start):
    return (row[start] + row[start + _ONE]) + (row[start + _TWO] + row[start + _THREE])


@njit(cache=True, inline="always")
def _sum_of_leaves(row, start):
    lower = _sum_of_four(row, start) + _sum_of_four(row, start + _FAN_OUT)
    return lower + (_sum_of_four(row, start + _TWO * _FAN_OUT) + _sum_of_four(row, start + _THREE * _FAN_OUT))


@njit(cache=True)
def refill(tree, offsets, first_member, masses):
    """Write the first leaves of some members and recompute all their parents.

    `tree` is [P, nodes], level k starts at `offsets[k]`, leaves at 0.
    """
    for member in range(masses.shape[0]):
        row = tree[first_member + member]
        for slot in range(masses.shape[1]):
            row[slot] = masses[member, slot]
        for level in range(1, offsets.shape[0]):
            _sum_level(row, level, np.uint64(offsets[level - 1]), np.uint64(offsets[level]))


@njit(cache=True)
def are_sound(masses):
    """Whether all masses are finite and positive."""
    sound = True
    for member in range(masses.shape[0]):
        for slot in range(masses.shape[1]):
            sound &= (masses[member, slot] > 0.0) & (masses[member, slot] < np.inf)
    return sound


@njit(cache=True)
def _sum_level(row, level, below, first):
    if level == 1:
        for group in range((first - below) // _LEAVES):
            row[first + np.uint64(group)] = _sum_of_leaves(row, np.uint64(group) * _LEAVES)
    else:
        for group in range((first - below) // _FAN_OUT):
            row[first + np.uint64(group)] = _sum_of_four(row, below + np.uint64(group) * _FAN_OUT)


@njit(cache=True)
def write_masses(tree, offsets, first_member, slots, masses, kept):
    """Write leaves in order, so that the last mass of a repeated slot is used, then recompute their parents.

    Only masses where `kept` is true are written. Returns False, and writes nothing, if one of them is not finite and
    positive.
    """
    batch = slots.shape[1]
    for member in range(slots.shape[0]):
        for position in range(batch):
            if kept[member, position] and not 0.0 < masses[member, position] < np.inf:
                return False
    for member in range(slots.shape[0]):
        row = tree[first_member + member]
        for position in range(batch):
            if kept[member, position]:
                row[np.uint64(slots[member, position])] = masses[member, position]
        for position in range(batch):
            group = np.uint64(slots[member, position]) // _LEAVES
            row[np.uint64(offsets[1]) + group] = _sum_of_leaves(row, group * _LEAVES)
        for level in range(2, offsets.shape[0]):
            below, first = np.uint64(offsets[level - 1]), np.uint64(offsets[level])
            if (first - below) // _FAN_OUT <= np.uint64(batch):
                _sum_level(row, level, below, first)
                continue
            for position in range(batch):
                group = np.uint64(slots[member, position]) >> np.uint64(2 * level + 2)
                row[first + group] = _sum_of_four(row, below + group * _FAN_OUT)
    return True


@njit(cache=True, error_model="numpy")
def draw_mixture(tree, offsets, floor, size, uniforms, slots, probabilities):
    """Draw from (1−κ)·m(i)/Σm + κ/n; one uniform per draw is used for both parts."""
    batch = uniforms.shape[1]
    remainder, node, descending = np.empty(batch), np.empty(batch, np.int64), np.empty(batch, np.int64)
    for member in range(uniforms.shape[0]):
        row = tree[member]
        kappa = floor[member, 0]
        total = row[offsets[-1]]
        count = 0
        for position in range(batch):
            u = uniforms[member, position]
            if u < kappa:
                slots[member, position] = slot = min(np.int64(u / kappa * size), size - 1)
                prefetch(row, np.uint64(slot))
            else:
                remainder[count] = (u - kappa) / (1.0 - kappa) * total
                node[count] = 0
                descending[count] = position
                count += 1
        _descend(row, offsets, remainder[:count], node[:count])
        for number in range(count):
            slots[member, descending[number]] = min(node[number], size - 1)
        for position in range(batch):
            mass = row[np.uint64(slots[member, position])]
            probabilities[member, position] = mass / total * (1.0 - kappa) + kappa / size


@njit(cache=True)
def _descend(row, offsets, remainder, node):
    """Descend from the root to the leaf at which the cumulative mass reaches `remainder`, for every draw.

    The cache lines of the next group are requested one level ahead.
    """
    for level in range(offsets.shape[0] - 2, 0, -1):
        first, below = np.uint64(offsets[level]), np.uint64(offsets[level - 1])
        next_group = _FAN_OUT if level > 1 else _LEAVES
        for position in range(node.shape[0]):
            start = first + np.uint64(node[position]) * _FAN_OUT
            child, remainder[position] = _child(row, start, remainder[position])
            if row[start + child] == 0.0:
                child = _last_with_mass(row, start, FAN_OUT)
            node[position] = chosen = start - first + child
            prefetch(row, below + chosen * next_group)
            prefetch(row, below + chosen * next_group + next_group - _ONE)
    for position in range(node.shape[0]):
        start = np.uint64(node[position]) * _LEAVES
        leaf, remainder[position] = _leaf(row, start, remainder[position])
        if row[start + leaf] == 0.0:
            leaf = _last_with_mass(row, start, LEAVES)
        node[position] = start + leaf


@njit(cache=True)
def _last_with_mass(row, start, count):
    for child in range(count - 1, 0, -1):
        if row[start + np.uint64(child)] > 0.0:
            return np.uint64(child)
    return np.uint64(0)


@njit(cache=True, inline="always")
def _child(row, start, wanted):
    """The child at which the cumulative mass reaches `wanted`, and the remainder.

    If rounding makes `wanted` exceed the sum of the group, it is the last child, which may be empty.
    """
    first = row[start]
    second = first + row[start + _ONE]
    return _passed(wanted, first, second, second + row[start + _TWO])


@njit(cache=True, inline="always")
def _leaf(row, start, wanted):
    """As `_child` for the lowest nodes: first the quarter, then the leaf."""
    first = _sum_of_four(row, start)
    second = first + _sum_of_four(row, start + _FAN_OUT)
    quarter, wanted = _passed(wanted, first, second, second + _sum_of_four(row, start + _TWO * _FAN_OUT))
    leaf, wanted = _child(row, start + quarter * _FAN_OUT, wanted)
    return quarter * _FAN_OUT + leaf, wanted


@njit(cache=True, inline="always")
def _passed(wanted, first, second, third):
    """How many of three increasing bounds `wanted` reaches, and its distance from the last of them; branch-free."""
    count = np.uint64(wanted >= first) + np.uint64(wanted >= second) + np.uint64(wanted >= third)
    mark = first if wanted >= first else 0.0
    mark = second if wanted >= second else mark
    mark = third if wanted >= third else mark
    return count, wanted - mark


@njit(cache=True, error_model="numpy")
def place(tree, offsets, floor, kinds, clock, stamps, uniforms, slots):
    """Choose K distinct slots per member and stamp them: append until the buffer is full, then overwrite."""
    capacity = stamps.shape[1]
    count = slots.shape[1]
    taken, remainder, node = np.empty(count, np.int64), np.empty(1), np.empty(1, np.int64)
    for member in range(slots.shape[0]):
        for k in range(count):
            slot = (clock + k) % capacity
            if clock + k >= capacity and kinds[member] != FIFO:
                keep = -1
                if kinds[member] == ADAPTIVE:
                    size, kappa, u = min(clock, capacity), floor[member, 0], uniforms[member, k]
                    keep = _draw_one(tree[member], offsets, kappa, size, u, remainder, node)
                slot = _any_but(capacity, keep, taken, k, uniforms[member, count + k])
            slots[member, k] = slot
            stamps[member, slot] = clock + k + 1
            _insert(taken, k, slot)


@njit(cache=True, error_model="numpy")
def _draw_one(row, offsets, kappa, size, u, remainder, node):
    """One draw of `draw_mixture`; `remainder` and `node` are memory for one number each."""
    if u < kappa:
        return min(np.int64(u / kappa * size), size - 1)
    remainder[0], node[0] = (u - kappa) / (1.0 - kappa) * row[offsets[-1]], 0
    _descend(row, offsets, remainder, node)
    return min(node[0], size - 1)


@njit(cache=True)
def _any_but(capacity, keep, taken, count, u):
    """A uniform slot, excluding `keep` (−1 for none) and the first `count` of `taken`, in increasing order."""
    for number in range(count):
        if taken[number] == keep:
            keep = -1
    free = max(capacity - count - (keep >= 0), 1)
    slot = min(np.int64(u * free), free - 1)
    for number in range(count):
        if 0 <= keep < taken[number]:
            slot += slot >= keep
            keep = -1
        slot += slot >= taken[number]
    if keep >= 0:
        slot += slot >= keep
    return min(slot, capacity - 1)


@njit(cache=True)
def _insert(taken, count, slot):
    """Insert a slot into the first `count` of `taken`, which stay in increasing order."""
    while count > 0 and taken[count - 1] > slot:
        taken[count] = taken[count - 1]
        count -= 1
    taken[count] = slot


@njit(cache=True, error_model="numpy")
def inverse_probabilities(probabilities, size, weights):
    """1/(n·p(i))."""
    for member in range(probabilities.shape[0]):
        for position in range(probabilities.shape[1]):
            weights[member, position] = 1.0 / (size * probabilities[member, position])


@njit(cache=True)
def read_rows(rows, slots, out):
    """Copy the rows of the drawn slots to `out`; their cache lines are requested some rows ahead."""
    batch, width = slots.shape[1], np.uint64(rows.shape[2])
    for member in range(slots.shape[0]):
        values = rows[member].reshape(-1)
        for position in range(-_AHEAD, batch):
            if position + _AHEAD < batch:
                start = np.uint64(slots[member, position + _AHEAD]) * width
                for column in range(0, width, _LINE):
                    prefetch(values, start + np.uint64(column))
                prefetch(values, start + width - np.uint64(1))
            if position >= 0:
                start = np.uint64(slots[member, position]) * width
                for column in range(width):
                    out[member, position, column] = values[start + np.uint64(column)]


@njit(cache=True)
def write_rows(rows, slots, packed):
    """Write one row per member into its slot."""
    for member in range(rows.shape[0]):
        slot = np.uint64(slots[member, 0])
        for column in range(rows.shape[2]):
            rows[member, slot, column] = packed[member, column]


@njit(cache=True)
def pack(observation, action, next_observation, reward, terminated, packed):
    """Pack one transition per member into rows; return whether all values are finite."""
    taken = observation.shape[1]
    following = taken + action.shape[1]
    for member in range(packed.shape[0]):
        for column in range(taken):
            packed[member, column] = observation[member, column]
            packed[member, following + column] = next_observation[member, column]
        for column in range(action.shape[1]):
            packed[member, taken + column] = action[member, column]
        packed[member, -2] = reward[member]
        packed[member, -1] = terminated[member]
    return within(packed, -np.inf)


@njit(cache=True)
def within(values, lowest):
    """Whether every value is finite and at least `lowest`."""
    sound = True
    for member in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = values[member, column]
            sound &= (value >= lowest) & (abs(value) < np.inf)
    return sound
