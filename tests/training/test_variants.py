"""One sampler several times in a run, with options of its own."""

import csv
from dataclasses import replace

import pytest

from aes_rl.cli import main
from aes_rl.report.figures import style_of
from aes_rl.report.tables import Line, as_latex
from aes_rl.samplers import Adaptive
from aes_rl.training import Training, run_files
from tests.training.test_runs import SMALL, finish, stop_at

VARIANTS = ("uniform", "adaptive", "adaptive:floor=0.5,overwrite=fifo", 'adaptive:networks=["actor","critic"],nu=auto')


def scores_of(config: Training, directory) -> dict[str, list[str]]:
    rows = csv.DictReader(finish(config, directory).splitlines())
    scores: dict[str, list[str]] = {}
    for row in rows:
        scores.setdefault(row["sampler"], []).append(row["mean_return"])
    return scores


def test_options_after_a_name_are_for_that_one_alone() -> None:
    config = replace(SMALL, samplers=VARIANTS, sampler={"adaptive": Adaptive(retention=0.4)})
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
    options = {"adaptive": Adaptive(floor=0.5, overwrite="fifo")}
    alone = scores_of(replace(SMALL, samplers=("uniform", "adaptive"), sampler=options), tmp_path / "alone")
    assert together[VARIANTS[2]] == alone["adaptive"] != together["adaptive"]
    assert run_files.read_config(tmp_path / "together").samplers == VARIANTS


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ("adapted:floor=0.5", "unknown sampler 'adapted'"),
        ("adaptive:flor=0.5", "there is no option 'flor'"),
        ("adaptive:floor=0", "floor is 0"),
        ("adaptive:", "write name=value"),
        ("adaptive:floor=0.5,floor=0.6", "repeats an option"),
        ("adaptive:forget-every=30,forget_every=40", "repeats an option"),
        ("adaptive:nu=automatic", "takes auto or float, not 'automatic'"),
    ],
)
def test_mistakes_in_a_variant_are_named(sampler, message) -> None:
    with pytest.raises(ValueError, match=message):
        Training(samplers=(sampler,))


@pytest.mark.parametrize(
    "samplers", [("adaptive", "adaptive:floor=0.2"), ("adaptive:nu=auto,floor=0.1", "adaptive:floor=0.1,nu=auto")]
)
def test_one_variant_under_two_names_is_refused(samplers) -> None:
    with pytest.raises(ValueError, match="have the same options"):
        Training(samplers=samplers)


def test_a_variant_may_have_a_number_where_the_rest_have_a_word() -> None:
    options = {"adaptive": Adaptive(nu="auto")}
    _, number = Training(samplers=("adaptive", "adaptive:nu=1000"), sampler=options).sampler_configs
    assert number.nu == 1000.0
    assert isinstance(number.nu, float)


def test_a_run_of_variants_continues(tmp_path) -> None:
    config = replace(SMALL, samplers=VARIANTS)
    stop_at(130, config, tmp_path / "stopped")
    assert finish(config, tmp_path / "stopped") == finish(config, tmp_path / "whole")


def test_a_report_tells_variants_apart(tmp_path, capsys) -> None:
    finish(replace(SMALL, samplers=VARIANTS[:3]), tmp_path / "run")
    main(["report", str(tmp_path / "run")])
    assert "adaptive:floor=0.5" in capsys.readouterr().out
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert VARIANTS[2] in page
    styles = [tuple(style_of(sampler).values()) for sampler in VARIANTS]
    assert len(set(styles)) == len(VARIANTS)


def test_latex_takes_names_of_options_literally() -> None:
    line = Line("Hopper", "sac", "prioritized:priority_exponent=0.7", 5, (), "")
    assert r"priority\_exponent" in as_latex([line])
