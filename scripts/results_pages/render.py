"""Writes the results pages from their templates and the committed runs.

python -m scripts.results_pages.render            writes docs/results/index.md, deviations.md and docs/variance.md
python -m scripts.results_pages.render FOLDER     writes them below another folder

Every number of these pages is computed here: edit scripts/results_pages/templates, not the pages.
"""

import inspect
import re
import sys
import textwrap
from pathlib import Path

import jinja2

from scripts.results_pages import confirmation, deviations, simulations, small_batches, tables, time_to_score
from scripts.results_pages.data import DOCS

PAGES = {"index.md": "results/index.md", "deviations.md": "results/deviations.md", "variance.md": "variance.md"}
WIDTH = 120
NOTE = "<!-- Made by `make results` from scripts/results_pages/templates/{}. Do not edit. -->\n\n"


def render(template: str) -> str:
    """The text of a page."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    for module in (tables, small_batches, time_to_score, confirmation, deviations, simulations):
        environment.globals |= dict(inspect.getmembers(module, inspect.isfunction))
    title, _, text = environment.get_template(template).render().partition("\n\n")
    return f"{title}\n\n{NOTE.format(template)}" + "\n\n".join(map(_wrapped, text.split("\n\n")))


def _wrapped(block: str) -> str:
    """A paragraph or a list with lines of even length; other blocks as they are."""
    if block.startswith(("|", "#", "!", "<", "`", "    ")):
        return block
    end = "\n" if block.endswith("\n") else ""
    items = re.split(r"\n(?=- )", block.strip())
    wrap = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = []
    for item in items:
        wrap.subsequent_indent = "  " if item.startswith("- ") else ""
        lines.append(wrap.fill(" ".join(item.split())))
    return "\n".join(lines) + end


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    for template, page in PAGES.items():
        path = target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(template))
    figures = target / "results" / "figures"
    figures.mkdir(exist_ok=True)
    (figures / "small_batches.svg").write_text(confirmation.batch_figure())
    (figures / "small_batches_pilot.svg").write_text(small_batches.batch_figure())
    (figures / "small_batches_time.svg").write_text(time_to_score.time_figure())
