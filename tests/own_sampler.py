"""The samplers that the documentation writes, for tests that want one from outside."""

import re
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "samplers" / "your-own.md"
SOURCE, RANKED = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
"""A module with one rule, and what a second rule adds to it."""
