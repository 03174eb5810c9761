"""The paper's bounds on regret as functions. All regrets are divided by |B|², as in the paper.

`largest` is G², the bound on every squared gradient norm, `slots` is the buffer's size |B|, and `updates` is T. Bounds
known only up to a constant are given with the constant 1 and in units of G²: they show how regret grows, not how large
it is.
"""

import math

from aes_rl.errors import UserError


def largest_norm(rewards: float, discount: float, horizon: int, policy_floor: float, lipschitz: float) -> float:
    """Lemma 1: G², for H steps with discount factor γ (`horizon`, `discount`).

    Absolute rewards are at most ζ (`rewards`), action probabilities at least β (`policy_floor`), and the norms of
    ∇log π(a|s) at most L (`lipschitz`).
    """
    total = horizon if discount == 1 else (1 - discount**horizon) / (1 - discount)
    return float((rewards * total / policy_floor**horizon * horizon * lipschitz) ** 2)


def full_information(updates: int, largest: float) -> float:
    """Corollary 1: bound on the regret with full information and ν = G²."""
    return (27 * math.sqrt(updates) + 44) * largest


def partial_information(updates: int, slots: int, largest: float) -> float:
    """Corollary 2: bound on the expected regret with κ = (|B|/T)^(1/3) and ν = G²; it needs T ≥ |B|."""
    return float(74 * largest * slots ** (1 / 3) * updates ** (2 / 3))


def exploration(slots: int, updates: int) -> float:
    """The floor κ of Corollary 2."""
    if updates < slots:
        raise UserError(f"Corollary 2 needs at least as many updates as slots; {updates} updates, {slots} slots")
    return float((slots / updates) ** (1 / 3))


def implied_nu(slots: int, floor: float, largest: float) -> float:
    """ν = |B|G²/κ, which the proof of Corollary 2 implies, whereas the corollary states ν = G²."""
    return slots * largest / floor


def naive_rate(slots: int, constant: float, epochs: int) -> float:
    """Corollary 3: mean regret per update over E epochs of m = E/C² updates, where C is `constant`.

    Its proof applies Corollary 2 within an epoch, which needs m ≥ |B|, but the corollary assumes m < |B|/|Ψ|, where |Ψ|
    is the batch size. No m satisfies both.
    """
    return float(slots ** (1 / 3) * constant ** (2 / 3) / epochs ** (1 / 3))


def dynamic_rate(updates: int, slots: int, floor: float, forget_every: int) -> tuple[float, float, float, float]:
    """The four terms of Theorem 1, with κ = `floor` and M = `forget_every`.

    It needs M² < |B| and learning rates below 1/K, where K is the Lipschitz constant of the gradients.
    """
    restarts = updates / forget_every
    return (
        floor * slots * restarts,
        restarts / math.sqrt(floor * forget_every),
        slots * restarts / floor,
        updates / math.sqrt(slots * forget_every),
    )


def trivial(updates: int, largest: float, floor: float) -> float:
    """The bound that holds for every distribution with a floor κ: p(i) ≥ κ/|B|, so Σ_t f_t ≤ T·|B|²·G²/κ."""
    return updates * largest / floor
