"""Checkpoints that somebody has changed, with checksums that fit: what a stranger may send."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from aes_rl.training.checkpoint import _checksum


def newest(run: Path) -> Path:
    """The newest checkpoint of a run."""
    return sorted((run / "checkpoint").glob("[0-9]*"))[-1]


def rewrite_facts(run: Path, **changes: Any) -> None:
    """Change some facts."""
    path = newest(run) / "facts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    sign(run)


def rewrite_tensors(run: Path, **changes: Any) -> None:
    """Change some tensors by functions of them, or leave them out with None; dots are written as two underscores."""
    path = newest(run) / "tensors.safetensors"
    tensors = load_file(path)
    for name, change in changes.items():
        (whole,) = [known for known in tensors if known.replace(".", "__") == name]
        value = tensors.pop(whole)
        if change is not None:
            tensors[whole] = change(value).contiguous()
    save_file(tensors, path)
    sign(run)


def sign(run: Path) -> None:
    """Make the checksums those of the files."""
    path = newest(run)
    names = ("tensors.safetensors", "facts.json")
    (path / "checksums.json").write_text(json.dumps({name: _checksum(path / name) for name in names}))
