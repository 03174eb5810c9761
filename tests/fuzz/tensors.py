"""Mutations of a checkpoint's tensors."""

import json
import struct
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.fuzz.mutant import MOST_BYTES, Mutant, update_checksum

FILE = "tensors.safetensors"


def data_start(content: bytes) -> int:
    """Offset of the data in a safetensors file."""
    return 8 + int(struct.unpack("<Q", content[:8])[0])


def flip_data(mutant: Mutant) -> str | None:
    """Flip a bit in the data of the newest checkpoint."""
    path = _newest(mutant)
    if path is None:
        return None
    content = bytearray(path.read_bytes())
    start = data_start(bytes(content))
    if not 0 < start < len(content):
        return None
    place = start + int(mutant.random.random() * (len(content) - start))
    content[place] ^= 1 << mutant.random.randrange(8)
    path.write_bytes(content)
    return f"{mutant.text(path)}: a bit of byte {place}"


def poison(mutant: Mutant) -> str | None:
    """Write non-finite or too large numbers into a tensor, and update the checksum."""
    loaded = _loaded(mutant)
    if loaded is None:
        return None
    path, tensors = loaded
    group = mutant.random.choice(("agent.", "agent.", "replay.", "replay.rows", "environments.", ""))
    names = [name for name in tensors if name.startswith(group) and tensors[name].numel()]
    if not names:
        return None
    name = mutant.random.choice(names)
    tensor = tensors[name] = tensors[name].clone()
    if tensor.is_floating_point():
        value = mutant.random.choice((np.nan, np.nan, np.inf, -np.inf, 3e38, -1.0))
    else:
        value = mutant.random.choice((-1, 2**31 - 1, 2**62, -(2**62)) if tensor.dtype == torch.int64 else (1,))
    flat = tensor.view(-1)
    if mutant.random.random() < 0.5:
        flat[mutant.random.randrange(len(flat))] = value
    else:
        flat.fill_(value)
    _save(mutant, path, tensors)
    return f"{mutant.text(path)}: {name} = {value}"


def reshape(mutant: Mutant) -> str | None:
    """Change the shape, type or name of a tensor, and update the checksum."""
    loaded = _loaded(mutant)
    if loaded is None:
        return None
    path, tensors = loaded
    name = mutant.random.choice(list(tensors))
    tensor = tensors[name]
    kinds = ("flat", "grown", "empty", "scalar", "more dimensions", "type", "renamed", "removed", "added", "large")
    kind = mutant.random.choice(kinds)
    if kind == "flat":
        tensors[name] = tensor.reshape(-1)
    elif kind == "grown":
        tensors[name] = torch.cat([tensor.reshape(-1)] * 3)
    elif kind == "empty":
        tensors[name] = tensor.new_zeros((0, *tensor.shape[1:]))
    elif kind == "scalar":
        tensors[name] = tensor.new_zeros(())
    elif kind == "more dimensions":
        tensors[name] = tensor.reshape(*([1] * 40), *tensor.shape)
    elif kind == "type":
        types = [torch.float16, torch.float64, torch.int8, torch.bool, torch.int64, torch.bfloat16, torch.float32]
        type_ = mutant.random.choice([dtype for dtype in types if dtype != tensor.dtype])
        tensors[name], kind = tensor.to(type_), f"type {type_}"
    elif kind == "renamed":
        tensors[name + mutant.random.choice((".x", "\n", "x" * 100_000))] = tensors.pop(name)
    elif kind == "removed":
        del tensors[name]
    elif kind == "added":
        tensors["environments.99999.simulator"] = torch.zeros(3)
    else:
        tensors[name] = torch.zeros(50_000_000, dtype=torch.uint8)
    _save(mutant, path, tensors)
    return f"{mutant.text(path)}: {name} {kind}"


def rewrite_header(mutant: Mutant) -> str | None:
    """Write wrong values into the header of the safetensors file, and update the checksum."""
    path = _newest(mutant)
    if path is None:
        return None
    content = path.read_bytes()
    start = data_start(content)
    try:
        head = json.loads(content[8:start])
    except ValueError:
        return None
    name = mutant.random.choice([name for name in head if name != "__metadata__"])
    kind = mutant.random.choice(("length", "offsets", "shape", "type", "overlap", "deep"))
    text = None
    if kind == "offsets":
        head[name]["data_offsets"] = mutant.random.choice(([0, 10**15], [-8, 8], [8, 0], "ab", [2**64, 2**65]))
    elif kind == "shape":
        head[name]["shape"] = mutant.random.choice(([2**40, 2**40], [-1], [10**12], "x", [0, 2**63]))
    elif kind == "type":
        head[name]["dtype"] = mutant.random.choice(("F128", 7, None, "U64", "F8_E4M3"))
    elif kind == "overlap":
        head[name]["data_offsets"] = [0, 8]
    elif kind == "deep":
        text = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    text = text or json.dumps(head).encode()
    length = len(text) if kind != "length" else mutant.random.choice((0, 2**40, 2**63, 2**64 - 1, 10**8))
    path.write_bytes(struct.pack("<Q", length) + text + content[start:])
    update_checksum(path, content)
    mutant.has_new_checksum = True
    return f"{mutant.text(path)}: header: {kind} of {name}"


def _newest(mutant: Mutant) -> Path | None:
    checkpoints = mutant.checkpoints() if mutant.command != "report" else []
    path = checkpoints[-1] / FILE if checkpoints else None
    if path is None or not path.is_file() or path.is_symlink() or not 8 < path.stat().st_size < MOST_BYTES:
        return None
    return path


def _loaded(mutant: Mutant) -> tuple[Path, dict[str, Tensor]] | None:
    path = _newest(mutant)
    if path is None:
        return None
    try:
        return path, load_file(path)
    except (SafetensorError, ValueError, RuntimeError):
        return None


def _save(mutant: Mutant, path: Path, tensors: dict[str, Tensor]) -> None:
    before = path.read_bytes()
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    update_checksum(path, before)
    mutant.has_new_checksum = True
