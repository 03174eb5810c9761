"""Ways in which the files of a run are damaged, each with what the report says of it."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.report.conftest import write_run


class Damage(NamedTuple):
    """One way."""

    do: Callable[[Path], object]
    """Damages the run in a directory."""
    reason: str
    """What the report says."""


def _add_row(step: object, score: object) -> Callable[[Path], object]:
    """One more evaluation, the fourth, of the only member."""

    def do(run: Path) -> None:
        config = json.loads((run / "config.json").read_text())
        row = (step, 9, config["samplers"][0], config["seeds"][0], score)
        _append(",".join(map(str, row)) + "\n")(run)

    return do


def _append(text: str) -> Callable[[Path], object]:
    def do(run: Path) -> None:
        with (run / "evaluations.csv").open("a", newline="") as file:
            file.write(text)

    return do


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content)


def _set(**values: object) -> Callable[[Path], object]:
    def do(run: Path) -> None:
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | values))

    return do


def _cut(run: Path) -> None:
    """Within the last number, which still looks whole."""
    content = (run / "evaluations.csv").read_bytes().rstrip()
    (run / "evaluations.csv").write_bytes(content[:-1])


def _replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    def do(run: Path) -> None:
        (run / name).write_text((run / name).read_text().replace(old, new))

    return do


def _link(name: str) -> Callable[[Path], object]:
    def do(run: Path) -> None:
        (run / name).rename(run / "elsewhere")
        (run / name).symlink_to("elsewhere")

    return do


def _pipe(name: str) -> Callable[[Path], object]:
    def do(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return do


NO_SCORES = {
    "cut row": Damage(_append("4000,4000,uni\n"), "row of another length"),
    "cut number": Damage(_cut, "the last line is cut"),
    "bytes": Damage(_write("evaluations.csv", b"env_step,sampler,seed,mean_return\n\xff\xfe,\x00\n"), "valid table"),
    "empty": Damage(_write("evaluations.csv", b""), "has no evaluation yet (evaluations.csv is empty)"),
    "no table": Damage(lambda run: (run / "evaluations.csv").unlink(), "(evaluations.csv is missing)"),
    "head alone": Damage(_write("evaluations.csv", b"env_step,sampler,seed,mean_return\n"), "has no evaluation yet"),
    "no column": Damage(_replace("evaluations.csv", "mean_return", "mean"), "has no column mean_return"),
    "long field": Damage(_append("1" * 200_000 + "\n"), "a line of more than"),
    "nan": Damage(_add_row("9000", "nan"), "has the value 'nan' in row 4"),
    "infinite": Damage(_add_row("9000", "1e400"), "has the value '1e400' in row 4"),
    "huge": Damage(_add_row("9000", "1e200"), "has the value '1e200' in row 4"),
    "no score": Damage(_add_row("9000", ""), "has the value '' in row 4"),
    "negative step": Damage(_add_row("-9", "1"), "has env_step '-9' in row 4"),
    "step of 1e400": Damage(_add_row("1e400", "1"), "has env_step '1e400' in row 4"),
    "endless step": Damage(_add_row("9" * 5000, "1"), "(5,002 characters) in row 4"),
    "step again": Damage(_add_row("3000", "1"), "env_step 3000 in row 4 after 3000"),
    "step back": Damage(_add_row("1", "1"), "env_step 1 in row 4 after 3000"),
    "other run": Damage(_append("9000,9,naive,7,1\n"), "which config.json does not name"),
    "linked table": Damage(_link("evaluations.csv"), "is a symbolic link"),
    "pipe": Damage(_pipe("evaluations.csv"), "is a pipe"),
    "half a config": Damage(_write("config.json", b'{"task": "Hop'), "is not valid JSON"),
    "deep config": Damage(_write("config.json", b'{"a":' * 100_000), "is not valid JSON"),
    "list": Damage(_write("config.json", b"[]"), "holds a JSON list; it must be an object"),
    "empty config": Damage(_write("config.json", b""), "is not valid JSON"),
    "linked config": Damage(_link("config.json"), "is a symbolic link"),
    "config is a pipe": Damage(_pipe("config.json"), "is a pipe"),
    "no task": Damage(_write("config.json", b"{}"), "task is None"),
    "task is a number": Damage(_set(task=5), "task is 5"),
    "long task": Damage(_set(task="x" * 100_000), "(100,002 characters); a name is at most 200"),
    "task of two lines": Damage(_set(task="a\nb"), "printable characters"),
    "agent is a path": Damage(_set(agent="../../outside"), "says agent '../../outside'"),
    "seeds is a dict": Damage(_set(seeds={"2": 2}), "says seeds {'2': 2}"),
    "seeds are names": Damage(_set(seeds=["2"]), "says seeds ['2']"),
    "too many seeds": Damage(_set(seeds=list(range(100_000))), "names 100,000 runs"),
    "samplers is a name": Damage(_set(samplers="uniform"), "says samplers 'uniform'"),
    "steps in a list": Damage(_set(env_steps=[3000]), "says env_steps [3000]"),
    "infinite steps": Damage(_set(env_steps=float("inf")), "says env_steps inf"),
    "no steps": Damage(_set(env_steps=0), "says env_steps 0"),
}  # fmt: skip
"""Those after which a run cannot be shown."""

METRICS = "env_step,update_step,sampler,seed,metric,value\n1000,1,uniform,2,captured_fraction,0.5\n"
SCORES_ONLY = {
    "cut metrics": Damage(_write("metrics.csv", f"{METRICS}2000,2,unif".encode()), "the last line is cut"),
    "cut row": Damage(_write("metrics.csv", f"{METRICS}2000,2,unif\n".encode()), "row of another length"),
    "long field": Damage(_write("metrics.csv", f"{METRICS}{'x' * 200_000}".encode()), "a line of more than"),
    "infinite": Damage(_write("metrics.csv", f"{METRICS}2000,2,uniform,2,variance,inf\n".encode()), "value 'inf'"),
    "step back": Damage(_write("metrics.csv", f"{METRICS}9,2,uniform,2,captured_fraction,1\n".encode()), "must ascend"),
    "long metric": Damage(
        _write("metrics.csv", f"{METRICS}9,2,uniform,2,captured_fraction_{'x' * 300},1\n".encode()), "metric in row 2"
    ),
    "empty": Damage(_write("metrics.csv", b""), "has no column env_step"),
    "not packed": Damage(_write("metrics.csv.gz", METRICS.encode()), "not a valid table"),
    "cut while packed": Damage(_write("metrics.csv.gz", gzip.compress(METRICS.encode())[:-9]), "not a valid table"),
    "pipe": Damage(_pipe("metrics.csv"), "is a pipe"),
    "half a manifest": Damage(_write("manifest.json", b'{"wall'), "is not valid JSON"),
    "time in words": Damage(_write("manifest.json", b'{"wall_seconds": "long"}'), "says wall_seconds 'long'"),
    "no time": Damage(_write("manifest.json", b"{}"), "says wall_seconds None"),
    "endless": Damage(_write("manifest.json", b'{"wall_seconds": 1e400}'), "says wall_seconds inf"),
    "linked manifest": Damage(_link("manifest.json"), "is a symbolic link"),
}
"""Those after which its scores are shown and something else is not."""


def write_study(directory: Path, good: int, damages: list[Damage]) -> dict[Path, str]:
    """Good runs, and a damaged one for each damage; what the report must say of the damaged ones."""
    expected = {}
    for number in range(good + len(damages)):
        sampler, seed = ("uniform", "adaptive")[number % 2], number // 2
        scores = {(sampler, seed): [1.0 + seed, 2.0 + number, 3.0 + number]}
        run = directory / f"run-{number:03}"
        write_run(run, scores, ("Hopper-v5", "Ant-v5")[number // 2 % 2])
        # A damaged run every few good ones.
        if damages and number % ((good + len(damages)) // len(damages)) == 0 and len(expected) < len(damages):
            damage = damages[len(expected)]
            damage.do(run)
            expected[run] = damage.reason
    return expected
