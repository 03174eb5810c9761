"""Makes mutants one after the other, runs a command on each, and checks what the command did."""

import shutil
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple

from tests.fork_server import Ended, ForkServer, Limits
from tests.fuzz import valid_runs, violations
from tests.fuzz.mutant import SECRET, Mutant, evil_source
from tests.fuzz.mutations import mutate
from tests.fuzz.violations import Violation

COMMANDS = {
    "evaluate": (["evaluate"], ["--episodes", "2"], 5),
    "record": (["record"], ["--frames", "3"], 3),
    "report": (["report"], ["--window", "1"], 2),
    "lab variance": (["lab", "variance"], ["--slots", "20"], 4),
    "train": (["train"], [], 6),
}
"""Arguments before and after the directory, and the weight with which each command is chosen."""
LIMITS = Limits(20.0)
TRAINING_LIMITS = Limits(20.0, (8.0, 11.0))
"""A long run is not a hang: it ends after SIGTERM, when its step is done or at the second signal."""


class Result(NamedTuple):
    """One mutant and the result of the command."""

    seed: int
    command: str
    kinds: list[str]
    """Kinds of its mutations."""
    changes: list[str]
    ended: Ended
    violations: list[Violation]

    @property
    def outcome(self) -> str:
        """One or two words."""
        if self.violations:
            return self.violations[0].kind
        return {0: "accepted", 130: "stopped", 143: "stopped"}.get(self.ended.code, "rejected")

    def __str__(self) -> str:
        shown = "; ".join(f"{violation.kind} ({violation.detail})" for violation in self.violations)
        return f"seed {self.seed}: {self.command} of {' + '.join(self.changes)}: {shown}"


class Campaign:
    """A directory with valid runs, canary files and one mutant at a time, and a server that runs commands."""

    def __init__(self, directory: Path):
        self._directory = directory.resolve()
        self._valid_runs = self._directory / "valid-runs"
        self._server = ForkServer()
        self._server.prepare("tests.fuzz.valid_runs:make", str(self._valid_runs))

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()

    def run(self, seed: int) -> Result:
        """Make the mutant of a seed, run its command on it, and check the result."""
        random = Random(seed)
        names, weights = list(COMMANDS), [weight for _, _, weight in COMMANDS.values()]
        (command,) = random.choices(names, weights)
        is_finished = random.random() < (0.2 if command == "train" else 0.5)
        mutant = self.copy(seed, command, random.choice(valid_runs.KINDS), is_finished, random)
        mutate(mutant)
        return self.check(mutant)

    def copy(self, seed: int, command: str, kind: str, is_finished: bool, random: Random) -> Mutant:
        """A copy of a valid run, before any mutation, with canary files around it."""
        run, around = self._directory / "run", self._directory / "around"
        finished = valid_runs.finished(self._valid_runs, kind)
        source = finished if is_finished else valid_runs.stopped(self._valid_runs, kind)
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
        return Mutant(seed, command, run, source, finished, outside, self._directory / "bombs", random)

    def check(self, mutant: Mutant) -> Result:
        """Run the mutant's command on it and check the result."""
        expected = violations.inspect(mutant)
        arguments, options, _ = COMMANDS[mutant.command]
        output, around = self._directory / "output", mutant.outside.parent
        output.mkdir(exist_ok=True)
        ended = self._server.run(
            [*arguments, str(mutant.run), *options],
            around / "current",
            output,
            TRAINING_LIMITS if mutant.command == "train" else LIMITS,
            {"PYTHONPATH": str(around / "path")},
        )
        found = violations.find(mutant, expected, ended, output)
        return Result(mutant.seed, mutant.command, mutant.kinds, mutant.changes, ended, found)
