"""Names that others chose, in each format that a report writes.

Names of tasks, samplers and directories come from run directories, and so maybe from a stranger. Every function takes
any text and returns text that its format shows literally, on one line.
"""

import re

_CUT = 1_000
"""Characters that are shown of a text; of a longer one, such as a path, both ends are."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
    # After the end of a row, a bracket or a star would be read as an argument of it.
    **{character: f"{{{character}}}" for character in "[]*"},
}
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>&|~#$]")
_FORMULA = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
            "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip


def one_line(text: str) -> str:
    """Printable text of bounded length; line breaks, control characters and what is no Unicode become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in _shortened(text, _CUT))


def for_latex(text: str) -> str:
    """Text of a LaTeX document."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def for_markdown(text: str) -> str:
    """Text of a Markdown page, also within a table. Numeric references work in every dialect, backslashes do not."""
    return _MARKDOWN.sub(lambda match: f"&#{ord(match[0])};", one_line(text))


def for_csv(text: str) -> str:
    """A cell of a CSV file that a spreadsheet takes for text and not for a formula; not meant for numbers."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def for_figure(text: str, most: int = 100) -> str:
    """A label for matplotlib, which takes dollars for mathematics and omits names with a leading underscore.

    Of a label longer than `most` characters both ends are shown: it would leave no room for what it labels.
    """
    line = _shortened(one_line(text), most).replace("$", r"\$")
    return f" {line}" if line.startswith("_") else line


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"
