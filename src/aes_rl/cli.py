"""The command `aes-rl`."""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from aes_rl import extensions
from aes_rl.errors import RunError, UserError

_HELP = """aes-rl: experience selection for off-policy reinforcement learning

  aes-rl train runs/hopper --task Hopper-v5 --samplers uniform adaptive --seeds 0 1
  aes-rl train runs/hopper-paper --preset paper --task Hopper-v5
  aes-rl evaluate runs/hopper
  aes-rl record runs/hopper
  aes-rl compare studies/two --tasks Hopper-v5 Walker2d-v5 --agents sac --seeds 0 1 2
  aes-rl tune studies/tuned --task Hopper-v5 --agent sac
  aes-rl report studies/two
  aes-rl lab variance runs/hopper
  aes-rl bench gpu

Each command has --help, and takes
  --module NAME  a module to import first: it adds a sampler of your own to aes_rl.samplers.registry.RULES, or brings
                 the task of a run (`module:Task-v0`)
  --debug        show the traceback of an error that is otherwise told in one line"""

_DEBUG = "--debug"
_LONGEST = 1500
"""Characters of a line about an error; file and option names may be long."""


_COMMANDS = {
    "train": "aes_rl.training.command",
    "evaluate": "aes_rl.training.command",
    "record": "aes_rl.training.command",
    "lab": "aes_rl.lab.commands",
    "bench": "aes_rl.training.speed",
    "compare": "aes_rl.study.command",
    "tune": "aes_rl.study.tune",
    "report": "aes_rl.report.command",
}
"""Where each command's function lives, imported when asked for: a report needs no simulator."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a mistake in what was typed or in a file ends it with one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_debugging = _DEBUG in words
    formatted, warnings.formatwarning = warnings.formatwarning, _formatted
    try:
        _run(extensions.taken_from([word for word in words if word != _DEBUG]))
    except (UserError, RunError, OSError, MemoryError) as error:
        if is_debugging:
            raise
        told = str(error) or "there is not enough memory; train fewer members at a time, or lower capacity"
        _say(told)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if is_debugging:
            raise
        _say("interrupted")
        raise SystemExit(130) from None
    finally:
        warnings.formatwarning = formatted


def _formatted(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    """A warning in one line, without the place in this program."""
    kind = "" if category is UserWarning else f" ({category.__name__})"
    return f"aes-rl: warning: {_printable(f'{message}')}{kind}\n"


def _say(text: str) -> None:
    """Tell the user what was wrong."""
    print(f"aes-rl: {_printable(text)}", file=sys.stderr)


def _printable(text: str) -> str:
    """What a file's names contain cannot control the terminal, nor fill it; a traceback has its lines."""
    text = text if len(text) <= _LONGEST or "\n" in text else f"{text[:_LONGEST]}…"
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _run(words: list[str]) -> None:
    if not words or words[0] in ("--help", "-h"):
        print(_HELP)
        return
    if words[0] == "--version":
        from aes_rl import __version__

        print(__version__)
        return
    if words[0] not in _COMMANDS:
        raise UserError(f"unknown command {words[0]!r}; the commands are {', '.join(_COMMANDS)}")
    command: Callable[[list[str]], None] = getattr(import_module(_COMMANDS[words[0]]), words[0])
    command(words[1:])
