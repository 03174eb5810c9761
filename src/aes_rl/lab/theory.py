"""The paper's bounds on regret as functions. Every regret is divided by |B|² once, as in the paper.

`largest` is the bound G² on a squared gradient norm, `slots` the buffer's size |B|. Bounds known only up to a constant
are given with the constant 1 and in units of G²: they show a rate, not a level.
"""

import math

from aes_rl.errors import UserError


def largest_norm(rewards: float, discount: float, horizon: int, policy_floor: float, lipschitz: float) -> float:
    """Lemma 1: G² for rewards up to ζ, action probabilities of at least β, score functions up to L and H steps."""
    total = horizon if discount == 1 else (1 - discount**horizon) / (1 - discount)
    return float((rewards * total / policy_floor**horizon * horizon * lipschitz) ** 2)


def full_information(updates: int, largest: float) -> float:
    """Corollary 1, with ν = G²."""
    return (27 * math.sqrt(updates) + 44) * largest


def partial_information(updates: int, slots: int, largest: float) -> float:
    """Corollary 2, with κ = (|B|/T)^(1/3) and T ≥ |B|, in expectation."""
    return float(74 * largest * slots ** (1 / 3) * updates ** (2 / 3))


def exploration(slots: int, updates: int) -> float:
    """κ of Corollary 2."""
    if updates < slots:
        raise UserError(f"Corollary 2 needs at least as many updates as slots; {updates} updates, {slots} slots")
    return float((slots / updates) ** (1 / 3))


def implied_nu(slots: int, floor: float, largest: float) -> float:
    """ν = |B|G²/κ, which the proof of Corollary 2 implies; its statement has ν = G²."""
    return slots * largest / floor


def naive_rate(slots: int, constant: float, epochs: int) -> float:
    """Corollary 3: mean regret per update with m = E/C² updates per epoch, up to a constant.

    Its proof applies Corollary 2 within an epoch, which needs m ≥ |B|, and assumes m < |B|/|Ψ|: no m satisfies both.
    """
    return float(slots ** (1 / 3) * constant ** (2 / 3) / epochs ** (1 / 3))


def dynamic_rate(updates: int, slots: int, floor: float, forget_every: int) -> tuple[float, float, float, float]:
    """The four terms of Theorem 1, up to constants; it needs M² < |B| and step sizes below 1/K."""
    restarts = updates / forget_every
    return (
        floor * slots * restarts,
        restarts / math.sqrt(floor * forget_every),
        slots * restarts / floor,
        updates / math.sqrt(slots * forget_every),
    )


def trivial(updates: int, largest: float, floor: float) -> float:
    """The bound for any distribution with a floor κ: p(i) ≥ κ/|B|, so Σ_t f_t ≤ T·|B|²·G²/κ."""
    return updates * largest / floor
