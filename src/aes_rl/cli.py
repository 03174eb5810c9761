"""The command `aes-rl`: train, evaluate, record."""

import sys
from collections.abc import Callable, Sequence

_HELP = """aes-rl: experience selection for off-policy reinforcement learning

  aes-rl train runs/hopper --task Hopper-v5 --samplers uniform adaptive --seeds 0 1
  aes-rl train runs/hopper-paper --preset paper --task Hopper-v5
  aes-rl evaluate runs/hopper
  aes-rl record runs/hopper

Each command has --help."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a mistake in what was typed ends it with one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _run(words)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"aes-rl: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _run(words: list[str]) -> None:
    if not words or words[0] in ("--help", "-h"):
        print(_HELP)
        return
    if words[0] == "--version":
        from aes_rl import __version__

        print(__version__)
        return
    from aes_rl.training import command

    commands: dict[str, Callable[[list[str]], None]] = {
        "train": command.train,
        "evaluate": command.evaluate,
        "record": command.record,
    }
    if words[0] not in commands:
        raise ValueError(f"unknown command {words[0]!r}; the commands are {', '.join(commands)}")
    commands[words[0]](words[1:])
