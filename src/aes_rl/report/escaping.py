"""Escapes names for each output format of a report.

Names of tasks, samplers and directories come from run directories, which may be untrusted. Every function accepts any
text and returns one line that its format shows literally.
"""

import re

_CUT = 1_000
"""Maximum number of characters shown. The middle of longer texts, such as paths, is cut out."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
    # At the start of a row, LaTeX would read a bracket or a star as an argument of the preceding \\.
    **{character: f"{{{character}}}" for character in "[]*"},
}
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>&|~#$]")
_FORMULA = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
            "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip


def one_line(text: str) -> str:
    """Printable text of bounded length. Line breaks, control characters and invalid Unicode are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in _shortened(text, _CUT))


def for_latex(text: str) -> str:
    """Text for a LaTeX document."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def for_markdown(text: str) -> str:
    """Text for a Markdown page or table. Numeric character references work in every dialect, backslashes do not."""
    return _MARKDOWN.sub(lambda match: f"&#{ord(match[0])};", one_line(text))


def for_csv(text: str) -> str:
    """A CSV cell that a spreadsheet reads as text, not as a formula. Not for numbers."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def number_for_csv(value: float) -> float | str:
    """A number for a CSV cell, which is empty if the number is missing (nan)."""
    return "" if value != value else value


def for_figure(text: str, most: int = 100) -> str:
    """A label for matplotlib, which reads dollar signs as math and omits names with a leading underscore.

    The middle of a label longer than `most` characters is cut out, to leave room for the axes.
    """
    line = _shortened(one_line(text), most).replace("$", r"\$")
    return f" {line}" if line.startswith("_") else line


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"
