"""The command `aes-rl`."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TextIO

from aes_rl import extensions
from aes_rl.errors import RunError, UserError

_HELP = """aes-rl: experience selection for off-policy reinforcement learning

  aes-rl train runs/hopper --task Hopper-v5 --samplers uniform predictive --seeds 0 1
  aes-rl train runs/hopper-paper --preset paper --task Hopper-v5
  aes-rl evaluate runs/hopper
  aes-rl record runs/hopper
  aes-rl compare studies/two --tasks Hopper-v5 Walker2d-v5 --agents sac --seeds 0 1 2
  aes-rl queue studies studies.txt --processes 3
  aes-rl tune studies/tuned --task Hopper-v5 --agent sac
  aes-rl report studies/two
  aes-rl lab variance runs/hopper
  aes-rl bench gpu

Each command has --help."""
_COMMON = """Every command also takes
  --module NAME  a module to import first, which adds your own sampler to aes_rl.samplers.registry.RULES or registers
                 the task of a run (`module:Task-v0`); give it again to each command that reads the run
  --debug        show the traceback of errors that are otherwise reported in one line"""

_DEBUG = "--debug"
_UNREAD = 128 + 13
"""Exit status of a command whose output nobody reads any more: that of a process ended by SIGPIPE."""
_LONGEST_MESSAGE = 1500
"""Most characters of an error message; names of files and options may be long."""

_COMMANDS = {
    "train": "aes_rl.training.command",
    "evaluate": "aes_rl.training.command",
    "record": "aes_rl.training.command",
    "lab": "aes_rl.lab.commands",
    "bench": "aes_rl.training.gpu_benchmark",
    "compare": "aes_rl.study.command",
    "queue": "aes_rl.study.queue",
    "tune": "aes_rl.study.tune",
    "report": "aes_rl.report.command",
}
"""The module of each command's function, imported when the command is run: a report needs no simulator."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error in the arguments or in a file ends it with one line."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    is_debugging = _DEBUG in argv
    format_before, warnings.formatwarning = warnings.formatwarning, _format_warning
    try:
        _run(extensions.extract_modules([argument for argument in argv if argument != _DEBUG]))
        sys.stdout.flush()
    except (UserError, RunError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout):
            raise SystemExit(_UNREAD) from None
        if is_debugging:
            raise
        _print_error(str(error) or "there is not enough memory; train fewer members at a time, or lower capacity")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if is_debugging:
            raise
        _print_error("interrupted")
        raise SystemExit(130) from None
    finally:
        warnings.formatwarning = format_before


def _format_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> str:
    """A warning in one line, without its source line."""
    kind = "" if category is UserWarning else f" ({category.__name__})"
    return f"aes-rl: warning: {_printable(f'{message}')}{kind}\n"


def _is_unread(output: TextIO) -> bool:
    """Whether nobody reads the output any more, as behind `| head`. It then goes to the null device."""
    try:
        print(file=output, flush=True)
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output.fileno())  # Python flushes at its end, which would report the error again
        os.close(null)
        return True
    return False


def _print_error(text: str) -> None:
    print(f"aes-rl: {_printable(text)}", file=sys.stderr)


def _printable(text: str) -> str:
    """The text with control characters escaped, which a file may contain, and cut if long; tracebacks are not cut."""
    text = text if len(text) <= _LONGEST_MESSAGE or "\n" in text else f"{text[:_LONGEST_MESSAGE]}…"
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _run(argv: list[str]) -> None:
    if not argv or argv[0] in ("--help", "-h"):
        print(f"{_HELP}\n\n{_COMMON}")
        return
    if argv[0] == "--version":
        from aes_rl import __version__

        print(__version__)
        return
    if argv[0] not in _COMMANDS:
        raise UserError(f"unknown command {argv[0]!r}; the commands are {', '.join(_COMMANDS)}")
    command: Callable[[list[str]], None] = getattr(import_module(_COMMANDS[argv[0]]), argv[0])
    try:
        command(argv[1:])
    finally:
        if not {"--help", "-h"}.isdisjoint(argv):  # the command has printed its own help
            print(_COMMON, flush=True)
