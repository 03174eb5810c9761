"""The results pages are what their templates and the committed runs give, in plain English."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.results_pages import tables

PROJECT = Path(__file__).parents[2]
PAGES = (
    "results/index.md", "results/deviations.md", "variance.md",
    "results/figures/small_batches.svg", "results/figures/small_batches_pilot.svg",
    "results/figures/small_batches_time.svg",
)  # fmt: skip
IDIOMS = (
    r"told apart", r"on the way", r"of then\b", r"as ever", r"as it was", r"came of it", r"far more\b", r"gives up",
    r"prioritis", r"normalis", r"side by side", r"runs a cell", r"seeds a ", r"rides on",
)  # fmt: skip


@pytest.fixture(scope="module")
def rendered(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-m", "scripts.results_pages.render", target], check=True, cwd=PROJECT)
    return target


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_page_follows_from_the_committed_runs(rendered, page) -> None:
    assert (rendered / page).read_text() == (PROJECT / "docs" / page).read_text(), "run make results"


def test_a_statement_that_is_not_true_stops_the_rendering() -> None:
    assert tables.sure(True) == ""
    with pytest.raises(SystemExit):
        tables.sure(False)


def test_pages_and_report_texts_have_no_idioms() -> None:
    files = [
        *(PROJECT / "docs" / "results").glob("*.md"),
        PROJECT / "docs" / "variance.md",
        PROJECT / "docs" / "decisions" / "waiting.md",
        *(path for path in (PROJECT / "src" / "aes_rl" / "report").iterdir() if path.suffix in (".py", ".html")),
    ]
    assert len(files) > 20
    for path in files:
        text = re.sub(r"\s+", " ", path.read_text())
        found = [pattern for pattern in IDIOMS if re.search(pattern, text)]
        assert not found, path
