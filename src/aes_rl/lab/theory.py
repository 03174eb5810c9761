"""The paper's bounds on regret (S13) as functions. Every regret is divided by |B|² once, as in the paper.

`largest` is the bound G² on a squared gradient norm, `slots` the buffer's |B|. Bounds known only up to a constant are
given with the constant one and G² as their unit: they show a rate, not a level.
"""

import math

from aes_rl.errors import UserError


def largest_norm(rewards: float, discount: float, horizon: int, policy_floor: float, lipschitz: float) -> float:
    """Lemma 1: G² for rewards up to ζ, probabilities from β and score functions up to L, over H steps."""
    total = horizon if discount == 1 else (1 - discount**horizon) / (1 - discount)
    return float((rewards * total / policy_floor**horizon * horizon * lipschitz) ** 2)


def full_information(updates: int, largest: float) -> float:
    """Corollary 1, with ν = G²."""
    return (27 * math.sqrt(updates) + 44) * largest


def partial_information(updates: int, slots: int, largest: float) -> float:
    """Corollary 2, with κ = (|B|/T)^(1/3) and T ≥ |B|, in expectation."""
    return float(74 * largest * slots ** (1 / 3) * updates ** (2 / 3))


def exploration(slots: int, updates: int) -> float:
    """Corollary 2's κ."""
    if updates < slots:
        raise UserError(f"Corollary 2 needs at least as many updates as slots; {updates} updates, {slots} slots")
    return float((slots / updates) ** (1 / 3))


def implied_nu(slots: int, floor: float, largest: float) -> float:
    """ν = |B|G²/κ: what Corollary 2's own bound on the feedback asks for, where its statement writes G²."""
    return slots * largest / floor


def naive_rate(slots: int, constant: float, epochs: int) -> float:
    """Corollary 3: average regret an update, with m = E/C² updates an epoch, up to a constant.

    It applies Corollary 2 within an epoch, which needs m ≥ |B|, and assumes m < |B|/|Ψ|: no size satisfies both.
    """
    return float(slots ** (1 / 3) * constant ** (2 / 3) / epochs ** (1 / 3))


def dynamic_rate(updates: int, slots: int, floor: float, forget_every: int) -> tuple[float, float, float, float]:
    """Theorem 1's four terms, up to constants; it needs M² < |B| and steps below 1/K."""
    share = updates / forget_every
    return (
        floor * slots * share,
        share / math.sqrt(floor * forget_every),
        slots * share / floor,
        updates / math.sqrt(slots * forget_every),
    )


def trivial(updates: int, largest: float, floor: float) -> float:
    """What any distribution with a floor κ keeps: p(i) ≥ κ/|B|, so Σ_t f_t ≤ T·|B|²·G²/κ."""
    return updates * largest / floor
