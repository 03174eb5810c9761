"""Documentation that runs, and pages that keep up with the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from aes_rl.samplers import RULES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    str(page.relative_to(ROOT)): blocks
    for page in PAGES
    if (blocks := re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
}


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
    assert "total_timesteps | 800" in capsys.readouterr().out


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
