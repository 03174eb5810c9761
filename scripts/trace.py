"""One transition through five files: prints where each stage of a step lives and how long those files are together."""

import inspect
import sys
from pathlib import Path

from aes_rl.agents import SACAgent
from aes_rl.replay import Replay, Storage
from aes_rl.samplers.adaptive import AdaptiveRule
from aes_rl.training import loop

STAGES = [
    ("env step", loop.train),
    ("store", Storage.write),
    ("draw", Replay.sample),
    ("update", SACAgent.differentiate),
    ("feedback", AdaptiveRule.feedback),
]
MOST_LINES = 1000


def main() -> None:
    """Print the trace; fails if it has grown past what one can read in an afternoon."""
    root = Path(__file__).parent.parent
    files: dict[Path, int] = {}
    for stage, function in STAGES:
        path = Path(inspect.getfile(function)).resolve()
        files[path] = len(path.read_text().splitlines())
        line = inspect.getsourcelines(function)[1]
        print(f"{stage:9} {path.relative_to(root)}:{line} {function.__qualname__}")
    total = sum(files.values())
    print(f"{len(files)} files, {total} lines (at most {MOST_LINES})")
    sys.exit(int(total >= MOST_LINES or len(files) != len(STAGES)))


if __name__ == "__main__":
    main()
