"""Checks of what a command did with a mutant."""

import hashlib
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple

from tests.fork_server import MOST_PROCESSES, Ended
from tests.fuzz import contents, tensors
from tests.fuzz.mutant import MOST_BYTES, SECRET, Mutant

LOADING = ("evaluate", "record", "lab variance", "train")
"""Commands that read the newest checkpoint."""
_MOST_CHARACTERS = 2000
"""Maximum length of an error message."""
_MENTIONED = re.compile(r"checksum|damaged|(cannot|could not) be (read|used)|fall(s|ing)? back|instead|link", re.I)
_WARNING = ("aes-rl: warning: ", "WARNING: ")
"""Beginnings of lines that are not the error: warnings of this program and of MuJoCo."""
_SIMULATOR_LOG = "MUJOCO_LOG.TXT"
"""MuJoCo writes its warnings to this file in the working directory."""
_WRITTEN = {"train": ("manifest.json", "evaluations.csv"), "record": ("episode.gif",), "report": ("report/index.html",)}
"""Files that must exist after a command has exited with 0."""
_DAMAGE_KINDS = {"truncated", "flipped bits", "flipped tensor data", "file missing", "linked", "pipe"}
"""Kinds of mutations after which a run continues from an earlier checkpoint with equal results, or is rejected."""


class Violation(NamedTuple):
    """Something that a command must not do."""

    kind: str
    detail: str


class Expected(NamedTuple):
    """Facts about a mutant before the command runs, from which the expected result follows."""

    newest: str
    """Name of the newest checkpoint of the valid run."""
    around: dict[str, str]
    """The files around the directory."""
    is_damaged: bool
    """Whether the tensors of the newest checkpoint were changed and its checksum was not."""
    has_linked_input: bool
    """Whether a file that the command reads is a symbolic link."""
    mistyped: str | None
    """An option in config.json whose type is not that in the valid run."""
    must_end_the_same: bool
    """Whether only the newest checkpoint is damaged, so that the results must be those of the valid run."""


def inspect(mutant: Mutant) -> Expected:
    """Collect the facts about a mutant."""
    source = mutant.source
    newest = sorted((source / "checkpoint").glob("[0-9]*"))[-1].name
    path = mutant.run / "checkpoint" / newest / tensors.FILE
    is_readable = path.is_file() and path.stat().st_size < MOST_BYTES
    is_other = is_readable and path.read_bytes() != (source / "checkpoint" / newest / tensors.FILE).read_bytes()
    inputs = ["config.json"]
    if mutant.command in LOADING:
        inputs += ["checkpoint", f"checkpoint/{newest}"]
        inputs += [f"checkpoint/{newest}/{name}" for name in (tensors.FILE, "facts.json")]
    if mutant.command in ("report", "train"):
        inputs.append("evaluations.csv")
    return Expected(
        newest=newest,
        around=tree(mutant.outside.parent),
        is_damaged=mutant.command in LOADING and not mutant.has_new_checksum and is_other,
        has_linked_input=any((mutant.run / name).is_symlink() for name in inputs),
        mistyped=_mistyped(contents.read(source / "config.json"), _config(mutant))
        if mutant.command in LOADING
        else None,
        must_end_the_same=mutant.command == "train"
        and set(mutant.kinds) <= _DAMAGE_KINDS
        and all(change.startswith(f"checkpoint/{newest}") for change in mutant.changes),
    )


def find(mutant: Mutant, expected: Expected, ended: Ended, output: Path) -> list[Violation]:
    """All violations by a command."""
    stdout, stderr = _text(output / "stdout"), _text(output / "stderr")
    found = [
        *_ending(mutant.command, ended, stderr),
        *_outside(mutant, expected),
        *_shown(stdout + stderr, mutant),
    ]
    if ended.code == 0:
        found += _accepted(mutant, expected, stdout + stderr)
    return found


def tree(directory: Path) -> dict[str, str]:
    """All paths below a directory, with the mode, time of change and checksum of each."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.name == _SIMULATOR_LOG:
            continue
        facts = path.lstat()
        if path.is_symlink() or not path.is_file() or facts.st_size > MOST_BYTES:
            found[str(path)] = f"{facts.st_mode:o}" if path.is_dir() else f"{facts.st_mode:o} {facts.st_mtime_ns}"
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = f"{facts.st_mode:o} {facts.st_mtime_ns} {content}"
    return found


def _config(mutant: Mutant) -> Any:
    path = mutant.run / "config.json"
    return contents.read(path) if path in mutant.files() else None


def _mistyped(valid: Any, now: Any, name: str = "") -> str | None:
    """The first value of another type. An integer is accepted as a float, and None as any type."""
    if now is None or valid is None:
        return None
    if type(now) is not type(valid) and (type(valid), type(now)) != (float, int):
        return f"{name.strip('.')} is {now!r:.40}"
    if isinstance(valid, dict):
        pairs = [(valid[key], now[key], f"{name}.{key}") for key in valid.keys() & now.keys()]
    elif isinstance(valid, list) and valid:
        pairs = [(valid[0], value, f"{name}.{number}") for number, value in enumerate(now)]
    else:
        return None
    return next((found for pair in pairs if (found := _mistyped(*pair))), None)


def _ending(command: str, ended: Ended, stderr: str) -> list[Violation]:
    if ended.excess == "time" or (ended.code == -signal.SIGTERM and command == "train"):
        return [Violation("hang", f"ended by a signal after {ended.seconds:.0f} s")]
    if ended.excess == "memory":
        return [Violation("memory", f"{ended.peak_bytes / 1e9:.1f} GB")]
    if ended.excess == "processes":
        return [Violation("processes", f"more than {MOST_PROCESSES}")]
    if ended.code < 0:
        return [Violation("killed", f"by signal {-ended.code}; {stderr[-300:]}")]
    found = []
    if ended.left:
        found.append(Violation("processes left", f"{ended.left} outlived the command"))
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith(_WARNING)]
    if "Traceback" in stderr:
        found.append(Violation("traceback", lines[-1][:300]))
    elif ended.code in (1, 2):
        if len(lines) != 1 or not lines[0].startswith("aes-rl: "):
            found.append(Violation("not one line", f"{len(lines)} lines: {' | '.join(lines)[:300]!r}"))
        elif len(lines[0]) > _MOST_CHARACTERS:
            found.append(Violation("long line", f"{len(lines[0]):,} characters: {lines[0][:100]}"))
    elif ended.code in (130, 143) and command == "train":
        pass  # a long run that stopped after SIGTERM
    elif ended.code != 0:
        found.append(Violation("exit code", f"{ended.code}; {stderr[-300:]}"))
    return found


def _outside(mutant: Mutant, expected: Expected) -> list[Violation]:
    now = tree(mutant.outside.parent)
    changed = sorted(name for name in now.keys() | expected.around.keys() if now.get(name) != expected.around.get(name))
    if any(Path(name).name == "executed" or "__pycache__" in name for name in changed):
        return [Violation("executed", "a module that the directory names was imported")]
    if changed:
        return [Violation("wrote outside", ", ".join(Path(name).name for name in changed[:4]))]
    return []


def _shown(shown: str, mutant: Mutant) -> list[Violation]:
    found = []
    if "\x1b" in shown:
        found.append(Violation("terminal", "an escape sequence from the directory was printed"))
    if SECRET in shown:
        found.append(Violation("leak", "the contents of a file outside the directory were printed"))
    page = mutant.run / "report" / "index.html"
    if page.is_file() and not page.is_symlink() and contents.SCRIPT in page.read_text(errors="replace"):
        found.append(Violation("script", "a name became a script in the report's page"))
    return found


def _accepted(mutant: Mutant, expected: Expected, shown: str) -> list[Violation]:
    """Violations of a command that exited with 0: input that it must reject, or must mention."""
    found = []
    is_mentioned = bool(_MENTIONED.search(shown))
    if expected.is_damaged and not is_mentioned:
        found.append(Violation("damage accepted", "tensors were changed, and the output does not mention it"))
    if expected.mistyped:
        found.append(Violation("wrong type accepted", expected.mistyped))
    if expected.has_linked_input and not is_mentioned:
        found.append(Violation("link accepted", "an input is a link, and the output does not mention it"))
    poison = re.compile(rf"^checkpoint/{expected.newest}/.*(agent|rows|simulator).* = (nan|-?inf)$")
    is_poisoned = any(poison.search(change) for change in mutant.changes)
    if is_poisoned and not is_mentioned:
        found.append(
            Violation(
                "not finite accepted", "a tensor with non-finite values was read, and the output does not mention it"
            )
        )
    missing = [name for name in _WRITTEN.get(mutant.command, ()) if not (mutant.run / name).is_file()]
    if missing:
        found.append(Violation("missing output", f"exit code 0, but no {missing[0]}"))
    tables = () if missing or not expected.must_end_the_same else ("evaluations.csv", "metrics.csv")
    other = [name for name in tables if (mutant.run / name).read_bytes() != (mutant.finished / name).read_bytes()]
    if other:
        found.append(Violation("other results", f"{other[0]} differs from that of the valid run"))
    return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(2_000_000).decode(errors="replace")
