"""The notebook as a page of the documentation: `python -m scripts.notebook_page` writes docs/first-look.md."""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "first-look.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")


def page() -> str:
    """The notebook's text, code and output as Markdown, with a link to the notebook below the title."""
    title, *rest = [_markdown(cell) for cell in json.loads(NOTEBOOK.read_text())["cells"]]
    return "\n\n".join([title, f"[Download the notebook]({NOTEBOOK.name}){{ download }}", *rest]) + "\n"


def _markdown(cell: dict) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = "".join(line for output in cell["outputs"] for line in output["text"])
    return f"```python\n{source}\n```\n\n```text\n{printed}```"


if __name__ == "__main__":
    PAGE.write_text(page())
