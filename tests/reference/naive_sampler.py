"""Samplers written the obvious way: one member, plain lists, no tree. The fast ones must agree with them."""

import math

import numpy as np


class NaiveSampler:
    """The mixture of S6 over explicit masses, with S11's overwriting; subclasses say what the masses are."""

    floor = 0.0
    overwrite = "fifo"

    def __init__(self, capacity):
        self.capacity = capacity
        self.clock = 0
        self.masses = []
        self.stamps = []

    def probabilities(self):
        masses, n = np.array(self.masses), len(self.masses)
        return (1 - self.floor) * masses / masses.sum() + self.floor / n

    def slot_at(self, u):
        """The slot that the uniform u names: below the floor by position, above it by cumulative mass."""
        n = len(self.masses)
        if u < self.floor:
            return min(int(u / self.floor * n), n - 1)
        wanted = (u - self.floor) / (1 - self.floor) * sum(self.masses)
        for slot, mass in enumerate(self.masses):
            if wanted < mass:
                return slot
            wanted -= mass
        return n - 1

    def insert(self, u_keep, u_choose):
        if self.clock < self.capacity:
            slot = self.clock
            self.masses.append(None)
            self.stamps.append(None)
        elif self.overwrite == "fifo":
            slot = self.clock % self.capacity
        else:
            others = list(range(self.capacity))
            if self.overwrite == "adaptive" and self.capacity > 1:
                others.remove(self.slot_at(u_keep))
            slot = others[min(int(u_choose * len(others)), len(others) - 1)]
        self.clock += 1
        self.stamps[slot] = self.clock
        self.masses[slot] = self.fresh_mass(slot)
        return slot

    def report(self, slots, probabilities, signals, clock):
        for slot, probability, signal in zip(slots, probabilities, signals, strict=True):
            if self.stamps[slot] <= clock:
                self.masses[slot] = self.mass_after(slot, probability, signal)


class NaiveAdaptive(NaiveSampler):
    overwrite = "adaptive"

    def __init__(self, capacity, floor, nu, retention, forget_every):
        super().__init__(capacity)
        self.floor, self.nu, self.retention, self.forget_every = floor, nu, retention, forget_every
        self.sums = [0.0] * capacity

    def fresh_mass(self, slot):
        self.sums[slot] = 0.0
        return math.sqrt(self.nu)

    def mass_after(self, slot, probability, squared_norm):
        self.sums[slot] += squared_norm / probability
        return math.sqrt(self.sums[slot] + self.nu)

    def advance(self, update_step):
        if update_step % self.forget_every == 0:
            self.sums = [self.retention * w for w in self.sums]
            self.masses = [math.sqrt(self.sums[slot] + self.nu) for slot in range(len(self.masses))]


class NaivePrioritized(NaiveSampler):
    def __init__(self, capacity, exponent, smallest_error):
        super().__init__(capacity)
        self.exponent, self.smallest_error = exponent, smallest_error
        self.largest = 1.0

    def fresh_mass(self, _slot):
        return self.largest

    def mass_after(self, _slot, _probability, error):
        mass = (abs(error) + self.smallest_error) ** self.exponent
        self.largest = max(self.largest, mass)
        return mass

    def advance(self, _update_step):
        pass
