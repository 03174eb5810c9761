"""Documentation that runs, and pages that keep up with the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import aes_rl
from aes_rl.samplers import RULES
from scripts import notebook_page

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    str(page.relative_to(ROOT)): blocks
    for page in PAGES
    if (blocks := re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
}

IDIOMS = (
    "as ever",
    "as it was",
    "gives up",
    "higher on the way",
    "not told apart",
    "of which there is far more",
    "prioritised",
    "refused with a line",
    "rides on it",
    "robots of then",
    "what came of it",
)
"""Phrases that read like a translation."""


@pytest.mark.parametrize("page", BLOCKS)
def test_code_in_the_documentation_runs(page) -> None:
    """From the top of each page: a later block may use what an earlier one defines."""
    known, names = dict(RULES), {"__name__": "__main__"}
    try:
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), names)
    finally:
        RULES.clear()  # a sampler of one's own registers itself
        RULES.update(known)


def test_the_change_in_the_readme_trains_and_prints(capsys) -> None:
    """The lines of the diff that are not removed are a whole program, which reaches the host's first table."""
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert re.search(r"selection/.*total_timesteps +\| 800 ", capsys.readouterr().out, re.DOTALL)


def test_the_sampler_of_ones_own_by_gradient_norms_is_one(capsys) -> None:
    """The page's first block with the lines of its second change."""
    page = (ROOT / "docs" / "samplers" / "your-own.md").read_text()
    program = BLOCKS["docs/samplers/your-own.md"][0]
    _, change = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    for part in change.split(" …\n"):
        before, after = ("".join(f"{line[1:]}\n" for line in part.splitlines() if line[0] == sign) for sign in "-+")
        assert before in program
        program = program.replace(before, after)
    known = dict(RULES)
    try:
        exec(compile(program, "my_sampler.py", "exec"), {"__name__": "__main__"})
    finally:
        RULES.clear()
        RULES.update(known)
    assert "all checks passed" in capsys.readouterr().out


def test_the_page_of_the_notebook_is_the_notebook() -> None:
    """The page's blocks run like those of any page, so the notebook's cells do."""
    assert notebook_page.page() == notebook_page.PAGE.read_text()


def test_quoted_error_messages_are_those_of_the_code() -> None:
    """A message that was reworded cannot be found on the page by those who get it."""
    quoted = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)  # strings over several lines
    assert len(quoted) > 10
    assert not [message for message in quoted if message not in joined]


def test_the_version_is_the_same_everywhere() -> None:
    assert f"version: {aes_rl.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{aes_rl.__version__}}}" in (ROOT / "docs" / "paper.md").read_text()


def test_files_that_the_paper_is_mapped_to_exist() -> None:
    files = re.findall(r"`(src/[\w/.]+)`", (ROOT / "docs" / "paper.md").read_text())
    assert len(files) > 10
    assert not [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_pages_use_the_words_of_the_field(page) -> None:
    text = re.sub(r"\s+", " ", (ROOT / page).read_text()).lower()
    assert not [idiom for idiom in IDIOMS if idiom in text]


@pytest.mark.parametrize("name", RULES)
def test_every_sampler_has_a_page_with_all_its_options(name) -> None:
    text = (ROOT / "docs" / "samplers" / f"{name}.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `?\"?([^`\"|]*?)\"?`? \|", text, re.MULTILINE))
    expected = {field.name: str(field.default) for field in fields(RULES[name].config_type)}
    assert {option: _number(default) for option, default in rows.items()} == {
        option: _number(default) for option, default in expected.items()
    }


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
