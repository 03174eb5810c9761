"""The sampler that the documentation writes, for tests that want one from outside."""

import re
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "samplers" / "your-own.md"
SOURCE = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)[0]
