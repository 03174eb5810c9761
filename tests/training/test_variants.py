"""One sampler several times in a run, with options of its own."""

import csv
from dataclasses import replace

import pytest

from aes_rl.cli import main
from aes_rl.samplers import Adaptive
from aes_rl.training import Training, record
from tests.training.test_runs import SMALL, finish

VARIANTS = ("uniform", "adaptive", "adaptive:floor=0.5,overwrite=fifo", 'adaptive:networks=["actor","critic"],nu=auto')


def scores_of(config: Training, directory) -> dict[str, list[str]]:
    rows = csv.DictReader(finish(config, directory).splitlines())
    scores: dict[str, list[str]] = {}
    for row in rows:
        scores.setdefault(row["sampler"], []).append(row["mean_return"])
    return scores


def test_options_after_a_name_are_for_that_one_alone() -> None:
    config = replace(SMALL, samplers=VARIANTS, sampler=replace(SMALL.sampler, adaptive=Adaptive(retention=0.4)))
    adaptive = [own for own in config.sampler_configs if isinstance(own, Adaptive)]
    assert [(own.floor, own.nu, own.networks) for own in adaptive[::2]] == [
        (0.2, 1000.0, None),
        (0.5, 1000.0, None),
        (0.2, "auto", ("actor", "critic")),
    ]
    assert {own.retention for own in adaptive} == {0.4}, "the rest is what all of them have"


def test_a_variant_learns_as_the_sampler_with_these_options(tmp_path) -> None:
    together = scores_of(replace(SMALL, samplers=VARIANTS), tmp_path / "together")
    assert set(together) == set(VARIANTS)
    options = replace(SMALL.sampler, adaptive=Adaptive(floor=0.5, overwrite="fifo"))
    alone = scores_of(replace(SMALL, samplers=("uniform", "adaptive"), sampler=options), tmp_path / "alone")
    assert together[VARIANTS[2]] == alone["adaptive"] != together["adaptive"]
    assert record.read_config(tmp_path / "together").samplers == VARIANTS


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ("adapted:floor=0.5", "unknown sampler 'adapted'"),
        ("adaptive:flor=0.5", "there is no option 'flor'"),
        ("adaptive:floor=0", "floor is 0"),
        ("adaptive:", "write name=value"),
    ],
)
def test_mistakes_in_a_variant_are_named(sampler, message) -> None:
    with pytest.raises(ValueError, match=message):
        Training(samplers=(sampler,))


def test_a_report_tells_variants_apart(tmp_path, capsys) -> None:
    finish(replace(SMALL, samplers=VARIANTS[:3]), tmp_path / "run")
    main(["report", str(tmp_path / "run")])
    assert "adaptive:floor=0.5" in capsys.readouterr().out
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert VARIANTS[2] in page
