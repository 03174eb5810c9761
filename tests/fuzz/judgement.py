"""Whether a command has dealt with a mutant as it should."""

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
"""Of an error: a line that fills screens is none."""
_TOLD = re.compile(r"checksum|damaged|(cannot|could not) be (read|used)|fall(s|ing)? back|instead|link", re.I)
_WARNING = ("aes-rl: warning: ", "WARNING: ")
"""How lines about something else than the error begin: ours, and MuJoCo's."""
_SIMULATOR_LOG = "MUJOCO_LOG.TXT"
"""MuJoCo writes its warnings into the working directory, whatever is simulated."""
_WRITTEN = {"train": ("manifest.json", "evaluations.csv"), "record": ("episode.gif",), "report": ("report/index.html",)}
"""What is there once a command says that it has done its work."""
_DAMAGES = {"truncated", "flipped bits", "flipped tensor data", "file missing", "linked", "pipe"}
"""Kinds of mutations after which a run goes on from an earlier checkpoint to the same end, or not at all."""


class Violation(NamedTuple):
    """A promise that was not kept."""

    kind: str
    detail: str


class Before(NamedTuple):
    """What is known of a mutant before a command looks at it."""

    newest: str
    """The newest checkpoint of the honest run."""
    around: dict[str, str]
    """What lies around the directory."""
    is_damaged: bool
    """Whether the newest checkpoint's tensors are not what was saved, and the checksum is."""
    has_linked_input: bool
    """Whether something that the command reads is a link."""
    mistyped: str | None
    """An option in config.json of another type than it has in an honest one."""
    must_end_the_same: bool
    """Whether nothing but the newest checkpoint is damaged."""


def before(mutant: Mutant) -> Before:
    """Look at a mutant."""
    honest = mutant.honest
    newest = sorted((honest / "checkpoint").glob("[0-9]*"))[-1].name
    path = mutant.run / "checkpoint" / newest / tensors.FILE
    is_readable = path.is_file() and path.stat().st_size < MOST_BYTES
    is_other = is_readable and path.read_bytes() != (honest / "checkpoint" / newest / tensors.FILE).read_bytes()
    inputs = ["config.json"]
    if mutant.command in LOADING:
        inputs += ["checkpoint", f"checkpoint/{newest}"]
        inputs += [f"checkpoint/{newest}/{name}" for name in (tensors.FILE, "facts.json")]
    if mutant.command in ("report", "train"):
        inputs.append("evaluations.csv")
    return Before(
        newest=newest,
        around=tree(mutant.outside.parent),
        is_damaged=mutant.command in LOADING and not mutant.is_resigned and is_other,
        has_linked_input=any((mutant.run / name).is_symlink() for name in inputs),
        mistyped=_mistyped(contents.read(honest / "config.json"), _config(mutant))
        if mutant.command in LOADING
        else None,
        must_end_the_same=mutant.command == "train"
        and set(mutant.kinds) <= _DAMAGES
        and all(change.startswith(f"checkpoint/{newest}") for change in mutant.changes),
    )


def violations(mutant: Mutant, known: Before, ended: Ended, output: Path) -> list[Violation]:
    """Every promise that a command has broken."""
    stdout, stderr = _text(output / "stdout"), _text(output / "stderr")
    found = [
        *_ending(mutant.command, ended, stderr),
        *_outside(mutant, known),
        *_shown(stdout + stderr, mutant),
    ]
    if ended.code == 0:
        found += _accepted(mutant, known, stdout + stderr)
    return found


def tree(directory: Path) -> dict[str, str]:
    """What lies below a directory, with the contents of its files and when they were changed."""
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


def _mistyped(honest: Any, now: Any, name: str = "") -> str | None:
    """The first value of another type; a whole number may stand for any number, and None for many an option."""
    if now is None or honest is None:
        return None
    if type(now) is not type(honest) and (type(honest), type(now)) != (float, int):
        return f"{name.strip('.')} is {now!r:.40}"
    if isinstance(honest, dict):
        pairs = [(honest[key], now[key], f"{name}.{key}") for key in honest.keys() & now.keys()]
    elif isinstance(honest, list) and honest:
        pairs = [(honest[0], value, f"{name}.{number}") for number, value in enumerate(now)]
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
        return [Violation("died", f"of signal {-ended.code}; {stderr[-300:]}")]
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
        pass  # a long run, which was asked to stop and did
    elif ended.code != 0:
        found.append(Violation("exit code", f"{ended.code}; {stderr[-300:]}"))
    return found


def _outside(mutant: Mutant, known: Before) -> list[Violation]:
    now = tree(mutant.outside.parent)
    changed = sorted(name for name in now.keys() | known.around.keys() if now.get(name) != known.around.get(name))
    if any(Path(name).name == "executed" or "__pycache__" in name for name in changed):
        return [Violation("executed", "a module that the directory names was imported")]
    if changed:
        return [Violation("wrote outside", ", ".join(Path(name).name for name in changed[:4]))]
    return []


def _shown(shown: str, mutant: Mutant) -> list[Violation]:
    found = []
    if "\x1b" in shown:
        found.append(Violation("terminal", "an escape sequence of the directory's reached the terminal"))
    if SECRET in shown:
        found.append(Violation("leak", "the contents of a file outside were shown"))
    page = mutant.run / "report" / "index.html"
    if page.is_file() and not page.is_symlink() and contents.SCRIPT in page.read_text(errors="replace"):
        found.append(Violation("script", "a name became a script of the report's page"))
    return found


def _accepted(mutant: Mutant, known: Before, shown: str) -> list[Violation]:
    """What must not be accepted, or not without a word."""
    found = []
    is_told = bool(_TOLD.search(shown))
    if known.is_damaged and not is_told:
        found.append(Violation("damage accepted", "tensors changed and nothing was said"))
    if known.mistyped:
        found.append(Violation("wrong type accepted", known.mistyped))
    if known.has_linked_input and not is_told:
        found.append(Violation("link accepted", "a link stands in place of an input and nothing was said"))
    poison = re.compile(rf"^checkpoint/{known.newest}/.*(agent|rows|simulator).* = (nan|-?inf)$")
    is_poisoned = any(poison.search(change) for change in mutant.changes)
    if is_poisoned and not is_told:
        found.append(Violation("not finite accepted", "a tensor that is not finite was read and nothing was said"))
    missing = [name for name in _WRITTEN.get(mutant.command, ()) if not (mutant.run / name).is_file()]
    if missing:
        found.append(Violation("untrue end", f"exit code 0 and no {missing[0]}"))
    tables = () if missing or not known.must_end_the_same else ("evaluations.csv", "metrics.csv")
    other = [name for name in tables if (mutant.run / name).read_bytes() != (mutant.whole / name).read_bytes()]
    if other:
        found.append(Violation("another end", f"the run went on to another {other[0]}"))
    return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(2_000_000).decode(errors="replace")
