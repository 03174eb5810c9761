"""Names that others chose are shown literally in every format."""

import csv
import html
import re
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from matplotlib import cbook
from matplotlib.figure import Figure

from aes_rl.cli import main
from aes_rl.report.escaping import for_csv, for_figure, for_latex, for_markdown, one_line
from aes_rl.report.tables import Line, as_latex
from tests.report.conftest import write_run

ANY = st.text(st.characters(), max_size=40) | st.text(r"\{}$&#_%^~[]*<>|`'\"=+-@!()x ", max_size=12)
"""All of Unicode, also what cannot be encoded; and what means something somewhere."""
HOSTILE = r"=cmd|' /C calc'!A0 \input{/etc/passwd} <script>alert(1)</script> **x** $\frac{ [/] ${7*7}"


@given(ANY)
def test_one_line_is_printable_and_can_be_written(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    line.encode()
    if text.isprintable():
        assert line == text


def test_of_a_long_text_both_ends_are_shown() -> None:
    line = one_line("first" + "x" * 100_000 + "last")
    assert line.startswith("first")
    assert line.endswith("last")
    assert len(line) < 1100


@given(ANY)
def test_latex_has_no_command_but_ours(text: str) -> None:
    escaped = for_latex(text)
    plain = re.sub(r"\\text(backslash|asciitilde|asciicircum)\{\}|\\[{}$&#_%]|\{[][*]\}", "", escaped)
    assert not set(plain) & set(r"\{}$&#_%^~[]*")
    back = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
    pattern = re.compile("|".join(map(re.escape, back)) + r"|\\([{}$&#_%])|\{([][*])\}")
    assert pattern.sub(lambda match: match[1] or match[2] or back[match[0]], escaped) == one_line(text)


@given(ANY)
def test_markdown_has_no_markup(text: str) -> None:
    escaped = for_markdown(text)
    assert not set(re.sub(r"&#\d+;", "", escaped)) & set(r"\`*_{}[]<>&|~#$")
    assert html.unescape(escaped) == one_line(text)


@given(ANY)
def test_markdown_pages_show_the_text(text: str) -> None:
    """In the dialect of the documentation, within a table."""
    markdown = pytest.importorskip("markdown")
    table = f"| name |\n| --- |\n| x{for_markdown(text)}x |"
    shown = markdown.markdown(table, extensions=["tables", "attr_list"])
    assert f"<td>x{one_line(text)}x</td>" in html.unescape(shown)


@given(ANY)
def test_csv_has_no_formula(text: str) -> None:
    stream = StringIO()
    csv.writer(stream).writerow([for_csv(text), 1.5])
    cell, number = next(csv.reader(StringIO(stream.getvalue())))
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.removeprefix("'") == one_line(text).removeprefix("'")
    assert number == "1.5"


@given(ANY)
def test_figures_have_no_mathematics(text: str) -> None:
    escaped = for_figure(text)
    assert not cbook.is_math_text(escaped)
    assert not escaped.startswith("_")
    shown, is_mathematics = Figure().text(0, 0, escaped)._preprocess_math(escaped)
    assert not is_mathematics
    if len(one_line(text)) <= 100:
        assert shown == (f" {one_line(text)}" if text.startswith("_") else one_line(text))


def test_a_bracket_does_not_become_an_argument_of_the_row_before() -> None:
    assert "\n{[}9cm{]}" in as_latex([Line("[9cm]", "sac", "uniform", 5, (), "")])


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_report_with_hostile_names_is_built(tmp_path: Path) -> None:
    names = [HOSTILE, "$x$", "a $ b", "_hidden", "[bold]", "-x", "a|b", "名前", "x" * 200]
    scores = {(sampler, seed): [1.0, 2.0, 3.0 + seed] for sampler in ("uniform", *names) for seed in range(2)}
    for number, task in enumerate((HOSTILE, "Hopper-v5")):
        write_run(tmp_path / "runs" / str(number), scores, task)
    with (tmp_path / "runs" / "0" / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["env_step", "sampler", "seed", "metric", "value"])
        for metric in ("variance", "captured_fraction", f"captured_fraction_{HOSTILE}"):
            writer.writerows([1000, name, 0, metric, 0.5] for name in names)
    main(["report", str(tmp_path / "runs"), "--window", "1"])
    report = tmp_path / "runs" / "report"
    page = (report / "index.html").read_text()
    assert "<script" not in page
    for name in names:
        assert str(escape(name)) in page
    for table in ("measures.csv", "verdicts.csv", "together.csv"):
        with (report / table).open(newline="") as file:
            cells = {
                row[column] for row in csv.DictReader(file) for column in ("task", "sampler", "other") if column in row
            }
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
        assert {cell.removeprefix("'") for cell in cells} >= set(names)
    for text in ((report / "report.md").read_text(), (report / "measures.md").read_text()):
        assert "<script" not in text
        for name in names:
            assert f"| {for_markdown(name)} |" in text
    latex = (report / "measures.tex").read_text()
    assert r"\input" not in latex
    assert all(line.count(" & ") == 7 for line in latex.splitlines() if "SAC" in line)
