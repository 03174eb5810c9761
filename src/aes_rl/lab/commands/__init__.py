"""The command `aes-rl lab`: one file per command, imported when it is run."""

from collections.abc import Callable
from importlib import import_module

from aes_rl.errors import UserError
from aes_rl.extensions import require_extra

_HELP = """aes-rl lab: how samplers change the variance of the gradient, and whether the paper's theory holds

  aes-rl lab variance RUN            the variance that each sampler removes in a run's newest checkpoint
  aes-rl lab score SAMPLER …         the variance that samplers would remove on recorded problems, in seconds
  aes-rl lab scale                   the same for small and large buffers and batches, as a figure
  aes-rl lab sweep                   the effect of each parameter of AES, on recorded problems
  aes-rl lab regret                  regret over the number of updates, with the paper's bounds
  aes-rl lab trajectory              regret on the policy gradient of the theory, with real trajectories
  aes-rl lab pack RUN FILE           the norms recorded by a run (--trace-every) as one small file

Each command has --help."""

_COMMANDS = ("variance", "score", "scale", "sweep", "regret", "trajectory", "pack")
_WITH_PAGE = ("scale", "sweep", "regret", "trajectory")
"""Commands that draw figures and write a page."""


def lab(argv: list[str]) -> None:
    """Run one of the laboratory's commands."""
    if not argv or argv[0] in ("--help", "-h"):
        print(_HELP)
        return
    name = argv[0]
    if name not in _COMMANDS:
        raise UserError(f"unknown command {name!r}; the commands of aes-rl lab are {', '.join(_COMMANDS)}")
    if name in _WITH_PAGE:
        require_extra("report", "matplotlib", "jinja2")
    command: Callable[[list[str]], None] = getattr(import_module(f"{__name__}.{name}"), name)
    command(argv[1:])
