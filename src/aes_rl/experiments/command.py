"""The command `aes-rl lab`: what samplers do to the variance of the gradient, and whether the theory holds."""

from collections.abc import Callable
from importlib import import_module

from aes_rl.errors import UserError

_HELP = """aes-rl lab: what samplers do to the variance of the gradient, and whether the theory holds

  aes-rl lab variance RUN            how much of it each sampler removes in a run's newest checkpoint
  aes-rl lab score SAMPLER …         how much samplers would remove on recorded problems, in seconds
  aes-rl lab scale                   the same from small buffers and batches to large ones, as a figure
  aes-rl lab sweep                   which of AES's parameters makes it lose, on recorded problems
  aes-rl lab regret                  regret over the number of updates, beside the paper's bounds
  aes-rl lab trajectory              the same on the policy gradient of the theory, with real trajectories
  aes-rl lab pack RUN                the norms that a run recorded (--trace-every) as one small file

Each experiment has --help."""

_EXPERIMENTS = {
    name: f"aes_rl.experiments.{name}"
    for name in ("variance", "score", "scale", "sweep", "regret", "trajectory", "pack")
}


def lab(words: list[str]) -> None:
    """Run one of the laboratory's experiments."""
    if not words or words[0] in ("--help", "-h"):
        print(_HELP)
        return
    if words[0] not in _EXPERIMENTS:
        raise UserError(f"unknown experiment {words[0]!r}; aes-rl lab has: {', '.join(_EXPERIMENTS)}")
    experiment: Callable[[list[str]], None] = getattr(import_module(_EXPERIMENTS[words[0]]), words[0])
    experiment(words[1:])
