"""What a report does not say, because the runs do not show it."""

import html
import re

import pytest

from aes_rl.cli import main
from aes_rl.report.figures import save
from aes_rl.report.load import load
from aes_rl.report.training_figures import captured_fractions, learning_curves
from aes_rl.report.verdicts import in_cells, together, verdicts
from aes_rl.report.wording import counted, sampler_in_words
from tests.report.conftest import write_run


@pytest.fixture
def single(tmp_path):
    """Two tasks with two samplers, one seed and one evaluation each."""
    for task in ("Hopper-v5", "Walker2d-v5"):
        write_run(tmp_path / task, {("uniform", 2): [1.0], ("adaptive", 2): [2.0]}, task)
    return tmp_path


def test_one_evaluation_is_a_marker_and_not_an_aggregate(single) -> None:
    results = load(single)
    for axis in learning_curves(results, "sac", 10, []).axes:
        assert [line.get_marker() for line in axis.lines] == ["o", "o"]
    assert together(results, 10) == []
    main(["report", str(single)])
    report = single / "report"
    assert {path.stem for path in (report / "figures").iterdir()} == {"curves_sac"}
    page = (report / "index.html").read_text()
    assert "Hopper-v5 sac: some runs have one evaluation, so it is not in the aggregates" in page
    assert "<b>2</b>tasks" in page
    assert "Bands" not in page
    row = next(line for line in (report / "measures.md").read_text().splitlines() if "| adaptive |" in line)
    numbers = [re.sub(r" \(.*\)", "", cell).strip() for cell in row.split("|")[5:-1]]
    assert numbers == ["–", "–", "–", "–", "**2.000**"]


def test_one_seed_has_no_interval_and_no_spread(single) -> None:
    (*_, final, training) = in_cells(verdicts(load(single), 10))[0]
    assert final == "– (too few seeds)"
    assert training == "– (one evaluation)"
    write_run(single / "more", {("uniform", 2): [1.0, 2.0, 3.0], ("adaptive", 2): [2.0, 3.0, 4.0]}, "Ant-v5")
    main(["report", str(single), "--window", "2"])
    page = (single / "report" / "index.html").read_text()
    assert "one seed gives no interval" in page
    assert "1 task, 1 seed each" in page
    assert "± standard deviation" not in page


def test_readings_outside_the_figure_are_counted(tmp_path) -> None:
    """One seed of five falls to −50 at two of forty steps: the axis stays where the quartiles are."""
    seeds = (2, 20, 200, 2000, 20000)
    write_run(tmp_path / "run", {("uniform", seed): [1.0, 2.0] for seed in seeds})
    rows = ["env_step,sampler,seed,metric,value"]
    for step in range(1, 41):
        for seed in seeds:
            value = -50 if seed == 20 and step in (7, 9) else 0.5 + seed / 1e6
            rows.append(f"{step},uniform,{seed},captured_fraction,{value}")
    (tmp_path / "run" / "metrics.csv").write_text("\n".join(rows) + "\n")
    drawn = captured_fractions(load(tmp_path), "sac")
    assert drawn is not None
    figure, outliers = drawn
    assert outliers == (2, 200, -50)
    assert figure.axes[0].get_ylim()[0] > -1
    main(["report", str(tmp_path), "--window", "1"])
    assert (
        "Not drawn: 2 of 200 readings of single seeds below the axes, down to −50.0"
        in (tmp_path / "report" / "index.html").read_text()
    )


def test_no_hint_needs_a_mouse(study) -> None:
    main(["report", str(study), "--window", "3"])
    page = html.unescape((study / "report" / "index.html").read_text())
    assert "title=" not in page
    assert "¹ the paper's runs have 1,000,000 steps, these 20,000" in page
    captions = re.findall(r"<figcaption>(.+?)</figcaption>", page)
    assert len(captions) == page.count("<figure>") == 6
    markdown = (study / "report" / "report.md").read_text()
    for caption in captions:
        assert caption in markdown, "visible there too, not only as an alternative text"


def test_figures_are_the_same_bytes_every_time(study) -> None:
    for number in (1, 2):
        save(learning_curves(load(study), "sac", 3, []), study / str(number), "curves")
    for suffix in ("svg", "pdf", "png"):
        first, second = ((study / str(number) / f"curves.{suffix}").read_bytes() for number in (1, 2))
        assert first == second, suffix


def test_counts_and_samplers_in_words() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 1200)] == ["0 runs", "1 run", "2 runs", "1,200 runs"]
    assert sampler_in_words("adaptive:nu=auto,floor=0.1") == "adaptive (AES), ν auto, κ 0.1"
    assert sampler_in_words("predictive") == "predictive"
    assert sampler_in_words("my:own=1") == "my:own=1"
