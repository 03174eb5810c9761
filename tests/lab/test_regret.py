"""The paper's theory on streams with a known optimum."""

import numpy as np
import pytest

from aes_rl import Uniform
from aes_rl.cli import main
from aes_rl.errors import UserError
from aes_rl.lab import theory
from aes_rl.lab.regret import (
    STREAMS,
    alternating,
    dynamic,
    full_information,
    partial_information,
    regret_of,
    slope,
)
from aes_rl.lab.simulate import Drifting, captured_over_time

SLOTS, UPDATES = 16, (128, 512, 2048)


@pytest.mark.parametrize("name", STREAMS)
def test_uniform_regret_is_what_the_formula_says(name) -> None:
    norms = STREAMS[name](SLOTS, 50)
    stream = np.stack([norms(update) for update in range(50)])
    assert stream.max() <= 1
    found = regret_of(Uniform(), norms, SLOTS, 50, runs=2)
    paid = SLOTS * stream.sum()
    static = paid - np.sqrt(stream.sum(axis=0)).sum() ** 2
    moving = paid - (np.sqrt(stream).sum(axis=1) ** 2).sum()
    assert found.static == pytest.approx(static / SLOTS**2)
    assert found.dynamic == pytest.approx(moving / SLOTS**2)
    assert found.uniform == pytest.approx(found.dynamic)
    assert found.static_error == found.dynamic_error == 0


@pytest.mark.parametrize("name", STREAMS)
def test_full_information_is_within_its_rate_and_bound(name) -> None:
    found = [regret_of(full_information(), STREAMS[name](SLOTS, t), SLOTS, t, runs=1).static for t in UPDATES]
    assert slope(UPDATES, found) < 0.5
    assert all(value < theory.full_information(t, 1.0) for t, value in zip(UPDATES, found, strict=True))


@pytest.mark.parametrize("name", STREAMS)
def test_partial_information_is_within_its_rate_and_bound(name) -> None:
    found = [
        regret_of(partial_information(SLOTS, t, is_implied=False), STREAMS[name](SLOTS, t), SLOTS, t).static
        for t in UPDATES
    ]
    assert slope(UPDATES, found) < 2 / 3
    assert all(value < theory.partial_information(t, SLOTS, 1.0) for t, value in zip(UPDATES, found, strict=True))


def test_forgetting_helps_where_norms_change_owners() -> None:
    """Enough visits between two restarts: the dynamic form beats the one that never forgets."""
    norms = alternating(SLOTS, 4000)
    forgetting = dynamic(SLOTS, 0.1, 10.0, forget_every=1000)
    never = dynamic(SLOTS, 0.1, 10.0, forget_every=1000, retention=1.0)
    assert regret_of(forgetting, norms, SLOTS, 4000).dynamic < regret_of(never, norms, SLOTS, 4000).dynamic


@pytest.mark.parametrize(
    ("sampler", "message"),
    [("laber", "chooses among candidates"), ("predictive:networks=separate", "draws separately for critics and actor")],
)
def test_samplers_that_need_a_learner_or_several_draws_are_rejected(sampler, message) -> None:
    with pytest.raises(UserError, match=message):
        regret_of(sampler, alternating(64, 10), 64, 10)
    with pytest.raises(UserError, match=message):
        captured_over_time(sampler, Drifting(64, 0.5, 0.5), 8, 10)


def test_bounds_by_hand() -> None:
    assert theory.largest_norm(rewards=2, discount=0.5, horizon=2, policy_floor=0.5, lipschitz=3) == pytest.approx(
        (2 * 0.75 / (0.25 * 0.5) * 2 * 3) ** 2
    )
    assert theory.largest_norm(1, 1.0, 3, 1.0, 1) == pytest.approx(81)
    assert theory.full_information(100, 2.0) == pytest.approx(628)
    assert theory.partial_information(1000, 8, 1.0) == pytest.approx(74 * 2 * 100)
    assert theory.exploration(8, 1000) == pytest.approx(0.2)
    assert theory.implied_nu(10, 0.5, 3.0) == pytest.approx(60)
    assert theory.naive_rate(8, 8.0, 64) == pytest.approx(2 * 4 / 4)
    # M = √T/C: the second term is C^1.5 T^0.25/√κ, the fourth √C T^0.75/√|B|.
    terms = theory.dynamic_rate(10_000, 400, 0.25, 10)
    assert terms == pytest.approx((0.25 * 400 * 1000, 10**1.5 * 10 / 0.5, 400 * 1000 / 0.25, 10**0.5 * 1000 / 20))
    with pytest.raises(ValueError, match="at least as many updates as slots"):
        theory.exploration(10, 9)


def test_the_command_writes_figures_numbers_and_a_page(tmp_path, capsys) -> None:
    main(["lab", "regret", str(tmp_path), "--slots", "8", "--updates", "16", "32", "64", "--runs", "2"])
    assert "constant, full information" in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert {"regret.csv", "index.html", "static.svg", "dynamic.svg", "samples.svg", "parameters.svg"} <= names
    assert "data:image/svg+xml" in (tmp_path / "index.html").read_text()


def test_the_command_refuses_runs_shorter_than_the_buffer(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["lab", "regret", "--slots", "64", "--updates", "32", "128"])
    assert "each at least 64" in capsys.readouterr().err
