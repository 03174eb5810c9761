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


class NaiveLastValue(NaiveSampler):
    def __init__(self, capacity, floor, memory):
        super().__init__(capacity)
        self.floor, self.keep = floor, 1 - 1 / memory
        self.weight = self.total = 0.0

    def fresh_mass(self, _slot):
        return self.total / self.weight if self.weight else 1.0

    def report(self, slots, probabilities, signals, clock):
        self.weight *= self.keep
        self.total *= self.keep
        rows = [row for row in zip(slots, probabilities, signals, strict=True) if self.stamps[row[0]] <= clock]
        for _, probability, d in rows:
            weight = 1 / (min(clock, self.capacity) * probability)
            self.weight += weight
            self.total += weight * math.sqrt(d)
        for slot, _, d in rows:
            self.masses[slot] = max(math.sqrt(d), 1e-3 * self.total / self.weight)

    def advance(self, _update_step):
        pass


class NaivePredictive(NaiveSampler):
    """S15 over plain lists: the last log norm and its update of every slot, weighted moments, one slope an age."""

    def __init__(self, capacity, floor, memory, refresh_every):
        super().__init__(capacity)
        self.floor, self.last_floor = 1.0, floor
        self.keep, self.refresh_every = 1 - 1 / memory, refresh_every
        self.logs, self.seen = [0.0] * capacity, [0] * capacity
        self.moments = np.zeros(3)
        self.pairs = np.zeros((24, 2))
        self.updates = 0

    def statistics(self):
        total = max(self.moments[0], 1e-300)
        mean = self.moments[1] / total
        return mean, max(self.moments[2] / total - mean**2, 0.0)

    def mass(self, slot, horizon=1):
        mean, variance = self.statistics()
        slope, log = 0.0, 0.0
        if self.seen[slot]:
            age = max(horizon, self.updates - self.seen[slot])
            old_new, old_old = self.pairs[int(math.log2(age))]
            prior = 16 * max(variance, 1e-12)
            slope = min(1.0, max(0.0, old_new / (old_old + prior)))
            log = self.logs[slot]
        return math.exp(0.5 * (mean + slope * (log - mean) + 0.5 * variance * (1 - slope**2)))

    def fresh_mass(self, slot):
        self.seen[slot] = 0
        return self.mass(slot)

    def report(self, slots, probabilities, signals, clock):
        self.updates += 1
        self.moments *= self.keep
        self.pairs *= self.keep
        rows = [row for row in zip(slots, probabilities, signals, strict=True) if self.stamps[row[0]] <= clock]
        n = min(clock, self.capacity)
        for _, probability, d in rows:
            self.moments += np.array([1.0, math.log(d), math.log(d) ** 2]) / (n * probability)
        mean, _ = self.statistics()
        for slot, probability, d in rows:
            if self.seen[slot]:
                old, new = self.logs[slot] - mean, math.log(d) - mean
                age = int(math.log2(self.updates - self.seen[slot]))
                self.pairs[age] += np.array([old * new, old * old]) / (n * probability)
        for slot, _, d in rows:
            self.logs[slot], self.seen[slot] = float(np.float32(math.log(d))), self.updates
        for slot, _, _ in rows:
            self.masses[slot] = self.mass(slot, max(1, min(self.refresh_every // 2, n // len(slots))))

    def advance(self, update_step):
        self.floor = max(self.last_floor, self.refresh_every / (self.refresh_every + update_step))
        is_early = update_step < self.refresh_every and update_step in (1, 2, 4, 8)
        if is_early or update_step % self.refresh_every == 0:
            self.masses = [self.mass(slot) for slot in range(len(self.masses))]


class NaiveDeviation(NaiveSampler):
    """Forecasts of deviations over plain lists: every pair is kept, and NumPy fits the regression of every bucket.

    Norms below a hundredth of the mean norm count as a hundredth.
    """

    def __init__(self, capacity, floor, memory, mean_memory, refresh_every, uses_last=False):
        super().__init__(capacity)
        self.floor, self.last_floor, self.refresh_every = 1.0, floor, refresh_every
        self.keep, self.keep_mean, self.uses_last = 1 - 1 / memory, 1 - 1 / mean_memory, uses_last
        self.deviations, self.since, self.reports = [0.0] * capacity, [0] * capacity, [0] * capacity
        self.last = [0.0] * capacity
        self.logs, self.norms, self.pairs = [], [], {}
        self.updates = 0

    def statistics(self):
        """Mean and variance of log d over all reports, the older ones with less weight."""
        if not self.logs:
            return 0.0, 0.0
        weights = [weight * self.keep_mean ** (self.updates - update) for update, weight, _ in self.logs]
        values = [log for _, _, log in self.logs]
        mean = np.average(values, weights=weights)
        return mean, np.average((np.array(values) - mean) ** 2, weights=weights)

    def line(self, bucket, mean, variance):
        """Eight points with a total weight of 16, symmetric about 0 in all directions, stand for the prior."""
        side = math.sqrt(max(variance, 1e-12))
        pairs = [(2.0, a * side, b * side, c * side) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
        pairs += [(w * self.keep ** (self.updates - update), *own) for update, w, *own in self.pairs.get(bucket, [])]
        weights, known, last, new = (np.array(part) for part in zip(*pairs, strict=True))
        covariance = np.cov([known, last, new], aweights=weights, ddof=0)
        alone = [covariance[k, 2] / covariance[k, k] for k in (0, 1)]
        slopes = np.linalg.solve(covariance[:2, :2], covariance[:2, 2]) if self.uses_last else np.array([alone[0], 0])
        if self.uses_last and (slopes < 0).any():
            slopes = np.array(
                [0, alone[1]] if slopes[0] < 0 <= slopes[1] else [alone[0], 0] if slopes[0] >= 0 else [0, 0]
            )
        slopes = slopes.clip(0, 1)
        rest = new - slopes[0] * known - slopes[1] * last
        intercept = np.average(rest, weights=weights)
        return mean + intercept, slopes, np.average((rest - intercept) ** 2, weights=weights)

    def bucket(self, slot, age):
        by_reports = min(int(math.log2(self.reports[slot])) + 1, 5) if self.reports[slot] else 0
        return by_reports, int(math.log2(max(age, 1)))

    def mass(self, slot, horizon=1):
        bucket = self.bucket(slot, max(horizon, self.updates - self.since[slot]))
        start, slopes, residual = self.line(bucket, *self.statistics())
        known = slopes[0] * self.deviations[slot] + slopes[1] * self.last[slot]
        return math.exp(0.5 * (start + known + 0.5 * residual))

    def fresh_mass(self, slot):
        self.deviations[slot], self.last[slot], self.since[slot], self.reports[slot] = 0.0, 0.0, self.updates, 0
        return self.mass(slot, max(1, self.refresh_every // 2))

    def report(self, slots, probabilities, signals, clock):
        self.updates += 1
        rows = [row for row in zip(slots, probabilities, signals, strict=True) if self.stamps[row[0]] <= clock]
        n = min(clock, self.capacity)
        self.norms += [(self.keep_mean**-self.updates / (n * probability), d) for _, probability, d in rows]
        if rows:
            least = 0.01 * np.average([d for _, d in self.norms], weights=[weight for weight, _ in self.norms])
            rows = [(slot, probability, max(d, least)) for slot, probability, d in rows]
        self.logs += [(self.updates, 1 / (n * probability), math.log(d)) for _, probability, d in rows]
        mean, _ = self.statistics()
        for slot, probability, d in rows:
            bucket = self.bucket(slot, self.updates - self.since[slot])
            known = (self.deviations[slot], self.last[slot])
            pair = (self.updates, 1 / (n * probability), *known, math.log(d) - mean)
            self.pairs.setdefault(bucket, []).append(pair)
        for slot, d in {slot: d for slot, _, d in rows}.items():
            gain = max(1 / (self.reports[slot] + 1), 0.2)
            known = self.deviations[slot] + gain * (math.log(d) - mean - self.deviations[slot])
            self.deviations[slot] = float(np.float32(known))
            self.last[slot] = float(np.float32(math.log(d) - mean))
            self.since[slot], self.reports[slot] = self.updates, min(self.reports[slot] + 1, 16)
        for slot in {slot for slot, _, _ in rows}:
            self.masses[slot] = self.mass(slot, max(1, min(self.refresh_every // 2, n // len(slots))))

    def advance(self, update_step):
        self.floor = max(self.last_floor, self.refresh_every / (self.refresh_every + update_step))
        is_early = update_step < self.refresh_every and update_step in (1, 2, 4, 8)
        if is_early or update_step % self.refresh_every == 0:
            self.masses = [self.mass(slot) for slot in range(len(self.masses))]
