"""Several updates after one environment step: what a sampler sees of each, and in which order."""

from dataclasses import replace

from aes_rl.agents import SAC
from aes_rl.samplers import RULES
from aes_rl.samplers.prioritized import PrioritizedRule
from aes_rl.training import RunState, Training, train
from tests.training.test_runs import SMALL, finish, stop_at

WARM_UP, ROUNDS, UPDATES = 3, 5, 4
CONFIG = Training(
    task="InvertedPendulum-v5",
    samplers=("prioritized",),
    seeds=(0,),
    env_steps=WARM_UP + 2 * ROUNDS,
    capacity=50,
    updates_per_round=UPDATES,
    workers=0,
    sac=SAC(hidden=(8, 8), batch_size=8, warm_up_steps=WARM_UP),
)


def calls(config, monkeypatch):
    """What a rule is called with over a run."""
    seen = []

    class Recording(PrioritizedRule):
        def fresh(self, slots):
            seen.append("fresh")
            return super().fresh(slots)

        def weights(self, draw):
            seen.append("draw")
            return super().weights(draw)

        def feedback(self, report):
            seen.append("feedback")
            return super().feedback(report)

        def advance(self, update_step):
            seen.append(update_step)
            return super().advance(update_step)

    monkeypatch.setitem(RULES, "prioritized", Recording)
    run = RunState(config)
    for _ in train(run):
        pass
    run.close()
    return seen


def rounds(count, stored):
    """The calls of some rounds, each with transitions stored before its last `advance` and after it."""
    expected = []
    for first in range(1, UPDATES * count, UPDATES):
        for step in range(first, first + UPDATES - 1):
            expected += ["draw", "feedback", step]
        expected += ["draw", "feedback", "fresh", first + UPDATES - 1, *["fresh"] * (stored - 1)]
    return expected


def test_every_update_of_a_round_ends_with_an_advance(monkeypatch) -> None:
    """Forgetting and schedules would see one update in four if only the last update of a round advanced."""
    assert calls(CONFIG, monkeypatch) == ["fresh"] * WARM_UP + rounds(2 * ROUNDS, stored=1)


def test_steps_between_rounds_do_not_advance(monkeypatch) -> None:
    found = calls(replace(CONFIG, steps_per_round=2), monkeypatch)
    assert found == ["fresh"] * WARM_UP + rounds(ROUNDS, stored=2)


def test_rows_between_updates_have_the_losses_of_the_last_one(tmp_path) -> None:
    """With an update every 4 steps no row falls on one; a run that continues writes the same rows."""
    config = replace(SMALL, steps_per_round=4, log_every=2, measure_variance_every=6, checkpoint_every=None)
    finish(config, tmp_path / "whole")
    rows = [row.split(",") for row in (tmp_path / "whole" / "metrics.csv").read_text().splitlines()[1:]]
    after = [step for step in range(2, config.env_steps + 1, 2) if step > config.warm_up_steps]
    for name in ("critic_loss", "largest_weight"):
        assert sorted({int(row[0]) for row in rows if row[4] == name}) == after
    for stop in (after[3] - 1, after[3], after[3] + 1):
        directory = tmp_path / f"stopped-{stop}"
        stop_at(stop, config, directory)
        finish(config, directory)
        assert (directory / "metrics.csv").read_text() == (tmp_path / "whole" / "metrics.csv").read_text()
