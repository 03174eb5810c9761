"""Mutants made, handed to commands and judged, one after the other."""

import shutil
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple

from tests.fork_server import Ended, ForkServer, Limits
from tests.fuzz import honest, judgement
from tests.fuzz.judgement import Violation
from tests.fuzz.mutant import SECRET, Mutant, evil_source
from tests.fuzz.mutations import mutate

COMMANDS = {
    "evaluate": (["evaluate"], ["--episodes", "2"], 5),
    "record": (["record"], ["--frames", "3"], 3),
    "report": (["report"], ["--window", "1"], 2),
    "lab variance": (["lab", "variance"], ["--slots", "20"], 4),
    "train": (["train"], [], 6),
}
"""Words before and after the directory, and how often each is chosen."""
LIMITS = Limits(20.0)
TRAINING_LIMITS = Limits(20.0, (8.0, 11.0))
"""A long run is no hang: it ends when it is asked to, after its step or at the second signal."""


class Result(NamedTuple):
    """One mutant and what became of it."""

    seed: int
    command: str
    kinds: list[str]
    """Of its mutations."""
    changes: list[str]
    ended: Ended
    violations: list[Violation]

    @property
    def outcome(self) -> str:
        """In a word or two."""
        if self.violations:
            return self.violations[0].kind
        return {0: "accepted", 130: "stopped", 143: "stopped"}.get(self.ended.code, "refused")

    def __str__(self) -> str:
        broken = "; ".join(f"{violation.kind} ({violation.detail})" for violation in self.violations)
        return f"seed {self.seed}: {self.command} of {' + '.join(self.changes)}: {broken}"


class Campaign:
    """A directory with honest runs, canaries and one mutant at a time, and a server that runs commands."""

    def __init__(self, directory: Path):
        self._directory = directory.resolve()
        self._honest = self._directory / "honest"
        self._server = ForkServer()
        self._server.prepare("tests.fuzz.honest:make", str(self._honest))

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()

    def run(self, seed: int) -> Result:
        """Make the mutant of a seed, hand it to a command, and judge."""
        random = Random(seed)
        names, weights = list(COMMANDS), [weight for _, _, weight in COMMANDS.values()]
        (command,) = random.choices(names, weights)
        is_finished = random.random() < (0.2 if command == "train" else 0.5)
        mutant = self.copy(seed, command, random.choice(honest.KINDS), is_finished, random)
        mutate(mutant)
        return self.judged(mutant)

    def copy(self, seed: int, command: str, kind: str, is_finished: bool, random: Random) -> Mutant:
        """A mutant that is still honest, with canaries around it."""
        run, around = self._directory / "run", self._directory / "around"
        whole = honest.finished(self._honest, kind)
        source = whole if is_finished else honest.stopped(self._honest, kind)
        for place in (run, around):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, run)
        outside = around / "outside"
        outside.mkdir(parents=True)
        (outside / "canary").write_text(SECRET)
        for name in ("current", "path"):
            package = around / name / "evil_package"
            package.mkdir(parents=True)
            for path in (around / name / "evil_module.py", package / "__init__.py", package / "module.py"):
                path.write_text(evil_source(outside / "executed"))
        return Mutant(seed, command, run, source, whole, outside, self._directory / "bombs", random)

    def judged(self, mutant: Mutant) -> Result:
        """Hand a mutant to its command, and judge."""
        known = judgement.before(mutant)
        words, options, _ = COMMANDS[mutant.command]
        output, around = self._directory / "output", mutant.outside.parent
        output.mkdir(exist_ok=True)
        ended = self._server.run(
            [*words, str(mutant.run), *options],
            around / "current",
            output,
            TRAINING_LIMITS if mutant.command == "train" else LIMITS,
            {"PYTHONPATH": str(around / "path")},
        )
        broken = judgement.violations(mutant, known, ended, output)
        return Result(mutant.seed, mutant.command, mutant.kinds, mutant.changes, ended, broken)
