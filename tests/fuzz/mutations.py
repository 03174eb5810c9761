"""The mutations: each changes one thing in a copy of a run, as in a run directory from an untrusted source."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import contents, tensors
from tests.fuzz.mutant import MOST_BYTES, SECRET, Mutant, remove

Mutation = Callable[[Mutant], str | None]
"""Changes a mutant and returns a description; None if there was nothing to change."""

OUTPUT_FILES = {
    "evaluate": (),
    "lab variance": (),
    "record": ("episode.gif", ".episode.gif.unfinished"),
    "report": (
        "study.json",
        "manifest.json",
        "metrics.csv.gz",
        "report/index.html",
        "report/.index.html.unfinished",
        "report/measures.csv",
        "report/report.md",
        "report/figures/scores.png",
    ),
    "train": (
        "lock",
        ".config.json.unfinished",
        "manifest.json",
        ".manifest.json.unfinished",
        "checkpoint/unfinished/facts.json",
        "checkpoint/unfinished/tensors.safetensors",
    ),
}
OUTPUT_DIRECTORIES = {
    "evaluate": ("checkpoint/000000999999",),
    "lab variance": ("checkpoint/000000999999",),
    "record": ("checkpoint/000000999999",),
    "report": ("report", "report/figures"),
    "train": ("checkpoint/unfinished", "checkpoint/000000000120", "checkpoint/000000999999"),
}
"""Paths that a command writes itself. A mutation may put something there before."""
_SPARSE_BYTES = 60_000_000_000


def truncate(mutant: Mutant) -> str | None:
    """Truncate a file."""
    path = _file(mutant)
    if path is None:
        return None
    size = int(path.stat().st_size * mutant.random.choice((0, mutant.random.random(), mutant.random.random())))
    os.truncate(path, size)
    return f"{mutant.text(path)}: {size} bytes remain"


def flip(mutant: Mutant) -> str | None:
    """Flip some bits of a file."""
    path = _file(mutant)
    if path is None:
        return None
    content = bytearray(path.read_bytes())
    for _ in range(mutant.random.choice((1, 1, 3, 50))):
        content[int(mutant.random.random() * len(content))] ^= 1 << mutant.random.randrange(8)
    path.write_bytes(content)
    return f"{mutant.text(path)}: flipped bits"


def delete(mutant: Mutant) -> str | None:
    """Remove a file or a directory."""
    paths = mutant.paths()
    if not paths:
        return None
    path = mutant.random.choice(paths)
    remove(path)
    return f"{mutant.text(path)}: removed"


def link(mutant: Mutant) -> str | None:
    """Replace a file or a directory by a symbolic link to something outside the run."""
    path, is_directory = _place(mutant)
    target = mutant.new_outside(path.name)
    kind = mutant.random.choice(("itself", "another", "nothing"))
    if kind == "itself" and path.exists():
        path.rename(target)
    elif kind != "nothing":
        _canary(target, is_directory)
    _clear(path)
    path.symlink_to(target, is_directory)
    return f"{mutant.text(path)}: a link to {kind}, outside"


def hard_link(mutant: Mutant) -> str | None:
    """Replace a file by a hard link to a file outside the run."""
    path, is_directory = _place(mutant)
    if is_directory:
        return None
    target = mutant.new_outside(path.name)
    if path.is_file() and mutant.random.random() < 0.7:
        path.rename(target)
    else:
        _canary(target, False)
    _clear(path)
    os.link(target, path)
    return f"{mutant.text(path)}: a hard link"


def pipe(mutant: Mutant) -> str | None:
    """Replace a file by a named pipe without a writer."""
    path, _ = _place(mutant)
    _clear(path)
    os.mkfifo(path)
    return f"{mutant.text(path)}: a pipe"


def exchange(mutant: Mutant) -> str | None:
    """Replace a file by a directory, or a directory by a file."""
    path, is_directory = _place(mutant)
    _clear(path)
    if is_directory:
        path.write_text(SECRET)
        return f"{mutant.text(path)}: a file"
    path.mkdir()
    if mutant.random.random() < 0.5:
        (path / "file").write_text(SECRET)
    return f"{mutant.text(path)}: a directory"


def bomb(mutant: Mutant) -> str | None:
    """Add a file that is sparse, or far larger when it is decompressed."""
    kinds = {"report": ("sparse", "packed rows", "packed line", "rows"), "train": ("sparse", "rows")}
    kind = mutant.random.choice(kinds.get(mutant.command, ("sparse",)))
    if kind == "sparse":
        path = _file(mutant)
        if path is None:
            return None
        os.truncate(path, _SPARSE_BYTES)
        return f"{mutant.text(path)}: grown to {_SPARSE_BYTES:,} bytes"
    table = mutant.run / ("evaluations.csv" if kind == "rows" else "metrics.csv.gz")
    if kind != "rows":
        remove(mutant.run / "metrics.csv")
    remove(table)
    shutil.copyfile(_bomb_file(mutant.bombs, kind), table)
    return f"{table.name}: a bomb of {kind}"


def plant(mutant: Mutant) -> str | None:
    """Add a path that no valid run has."""
    kind = mutant.random.choice(("empty checkpoint", "late checkpoint", "long name", "loop", "deep", "number"))
    checkpoints, checkpoint = mutant.checkpoints(), mutant.run / "checkpoint"
    if not checkpoint.is_dir() or checkpoint.is_symlink() or (mutant.command == "report") != (kind in ("loop", "deep")):
        return None
    if kind == "empty checkpoint":
        (checkpoint / "000000999999").mkdir(exist_ok=True)
    elif kind == "late checkpoint" and checkpoints:
        shutil.copytree(checkpoints[-1], checkpoint / "000000000999", symlinks=True, ignore=_bombs_and_others)
    elif kind == "long name":
        (checkpoint / ("9" * 250)).mkdir(exist_ok=True)
    elif kind == "loop":
        (mutant.run / "loop").symlink_to(mutant.run, True)
    elif kind == "deep":
        inner = mutant.run.joinpath(*["d"] * 300)
        inner.mkdir(parents=True, exist_ok=True)
        (inner / "config.json").write_text("{}")
    else:
        (checkpoint / "7").write_text(SECRET)
    return f"planted {kind}"


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "truncated": (truncate, 8),
    "flipped bits": (flip, 6),
    "flipped tensor data": (tensors.flip_data, 6),
    "retyped": (contents.retype, 16),
    "oversized": (contents.oversize, 12),
    "key missing": (contents.delete_key, 5),
    "file missing": (delete, 4),
    "linked": (link, 14),
    "hard link": (hard_link, 6),
    "pipe": (pipe, 6),
    "file and directory exchanged": (exchange, 5),
    "bomb": (bomb, 4),
    "planted": (plant, 4),
    "cell": (contents.change_cell, 8),
    "study": (contents.study, 3),
    "module named": (contents.name_a_module, 5),
    "tensor not finite or extreme": (tensors.poison, 7),
    "tensor of another form": (tensors.reshape, 6),
    "tensor header": (tensors.rewrite_header, 4),
}
"""Mutations and the weight with which each is chosen."""


def mutate(mutant: Mutant) -> None:
    """Apply one to three mutations."""
    names, weights = list(MUTATIONS), [weight for _, weight in MUTATIONS.values()]
    count = mutant.random.choice((1, 1, 1, 2, 3))
    while len(mutant.kinds) < count:
        (name,) = mutant.random.choices(names, weights)
        change = MUTATIONS[name][0](mutant)
        if change is not None:
            mutant.kinds.append(name)
            mutant.changes.append(change)


def _file(mutant: Mutant) -> Path | None:
    """A random file that is not empty."""
    paths = [path for path in mutant.files() if path.stat().st_size]
    return mutant.random.choice(paths) if paths else None


def _place(mutant: Mutant) -> tuple[Path, bool]:
    """A random path in the run that exists or that the command writes, and whether it is a directory."""
    there = [path for path in mutant.paths() if not path.is_symlink()]
    choices = [(path, path.is_dir()) for path in there if path.is_dir() or path.is_file()]
    choices += [(mutant.run / name, False) for name in OUTPUT_FILES[mutant.command]]
    choices += [(mutant.run / name, True) for name in OUTPUT_DIRECTORIES[mutant.command]]
    inside = [choice for choice in choices if _is_inside(choice[0], mutant.run)]
    return mutant.random.choice(inside)


def _is_inside(path: Path, run: Path) -> bool:
    """Whether no parent of a path is a link or a file."""
    above = list(path.relative_to(run).parents)[:-1]
    return all(not (run / part).is_symlink() and ((run / part).is_dir() or not (run / part).exists()) for part in above)


def _clear(path: Path) -> None:
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)


def _canary(target: Path, is_directory: bool) -> None:
    if is_directory:
        target.mkdir()
        for name in ("canary", "facts.json", "index.html"):
            (target / name).write_text(SECRET)
    else:
        target.write_text(SECRET)


def _bombs_and_others(directory: str, names: list[str]) -> list[str]:
    paths = {name: Path(directory) / name for name in names}
    return [name for name, path in paths.items() if not path.is_file() or path.stat().st_size > MOST_BYTES]


def _bomb_file(bombs: Path, kind: str) -> Path:
    """The path of a bomb, which is made on first use."""
    path = bombs / kind
    if path.exists():
        return path
    bombs.mkdir(parents=True, exist_ok=True)
    if kind == "rows":
        head = (
            "env_step,update_step,sampler,seed,mean_return,standard_deviation,lowest_return,highest_return,mean_length"
        )
        rows = "".join(f"40,20,uniform,{number},1.0,0.0,1.0,1.0,1.0\n" for number in range(2_000_000))
        path.write_text(f"{head}\n{rows}")
        return path
    head = "env_step,update_step,sampler,seed,metric,value\n"
    piece = b"40,20,uniform,0,captured_fraction,0.5\n" * 500_000 if kind == "packed rows" else b"x" * 20_000_000
    with path.open("wb") as file:
        file.write(gzip.compress(head.encode()))
        packed = gzip.compress(piece, 9)
        for _ in range(300):  # 6 GB: gzip reads members one after the other
            file.write(packed)
    return path
