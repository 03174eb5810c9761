"""Time two versions of the package in one interleaved run: `make bench-versions BEFORE=path/to/another/checkout`.

Each version runs in a process of its own and does a short piece of work on request, so that both are timed within a
second of each other; figures are medians, over rounds, of the ratio of two neighbours in time. Above 1 means that the
second version is faster.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

WORKS = (
    "replay uniform",
    "replay adaptive",
    "replay predictive",
    "train predictive 64",
    "train predictive 256",
    "train 6 members 64",
    "train workers",
    "sb3",
    "tianshou",
    "torchrl",
)
SLOTS, BATCH = 1_000_000, 256
Work = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of the version before")
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).parents[1], help="by default this one")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=WORKS, help="works to time, of: " + ", ".join(WORKS))
    parser.add_argument("--threads", type=int, default=1, help="of training")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    for work in args.only:
        with Version(args.before, work, args.threads) as before, Version(args.after, work, args.threads) as after:
            ratios = [before.seconds() / after.seconds() for _ in range(args.rounds)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{work:22} before / after {middle:.3f}, quartiles {low:.3f} to {high:.3f}", flush=True)


class Version:
    """A process that does one work with the sources of one checkout."""

    def __init__(self, checkout: Path, work: str, threads: int):
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, __file__, "--serve", work]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Version":
        self.seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def seconds(self) -> float:
        """Time of one piece of work."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def serve(name: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print what they like
    work = make(name)
    for _ in range(3):
        work()
    for _ in sys.stdin:
        start = time.perf_counter()
        work()
        print(time.perf_counter() - start, file=answers, flush=True)


def make(name: str) -> Work:
    kind, *rest = name.split()
    if kind == "replay":
        return replay(rest[0])
    if kind == "train":
        return training(name)
    import integrations

    host, _ = integrations.HOSTS[kind]
    step = host(True)

    def take() -> None:
        for _ in range(10):
            step()

    return take


def replay(name: str) -> Work:
    """Store 1, draw 256 with weights, report 256, at a million slots, fifty times."""
    import torch

    from aes_rl import Replay, Signals, Transition
    from aes_rl.samplers.registry import configure

    made = Replay([configure(name)], capacity=SLOTS, observation_size=17, action_size=6, seeds=[0], total_updates=10**6)
    fields = [torch.rand(1, *shape) for shape in ((17,), (6,), (), (17,), ())]
    for _ in range(SLOTS):
        made.add(Transition(*fields))
    error, norms = torch.rand(1, BATCH), {"critic": torch.rand(1, BATCH)}

    def take() -> None:
        for _ in range(50):
            made.add(Transition(*fields))
            sample = made.sample(BATCH)
            made.feedback(sample.draw, Signals(error, norms))

    return take


def training(name: str) -> Work:
    """Whole training steps of SAC on HalfCheetah-v5."""
    import torch

    from aes_rl import training as package
    from aes_rl.agents import SAC

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    words = name.split()
    seeds = tuple(range(6)) if "members" in words else (0,)
    workers = 1 if "workers" in words else 0
    batch_size = int(words[-1]) if words[-1].isdigit() else 64
    sac = SAC(warm_up_steps=500, batch_size=batch_size)
    # Other versions may have the older name.
    state_of = getattr(package, "RunState", None) or package.Run
    config = package.Training(
        task="HalfCheetah-v5", samplers=("predictive",), seeds=seeds, env_steps=10**6, workers=workers, sac=sac
    )
    loop = package.train(state_of(config))
    for _ in range(520):
        next(loop)

    def take() -> None:
        for _ in range(10):
            next(loop)

    return take


if __name__ == "__main__":
    main()
