"""Parts of a page that are made by a script: what stands between `<!-- name -->` and `<!-- /name -->`."""

from collections.abc import Iterable


def filled(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with other lines between the markers of a name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    return page[: page.index(begin) + len(begin)] + "\n".join(lines) + "\n" + page[page.index(end) :]
