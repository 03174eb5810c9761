"""Mutations of the contents of JSON files and tables."""

import json
from pathlib import Path
from typing import Any

from tests.fuzz.mutant import EVIL_MODULES, Mutant, evil_source, update_checksum

_RAW = "@raw@"
_DEEP = 100_000
_LONG = "x" * 100_000
_ESCAPES = "\x1b]0;canary\x07\x1b[2J"
SCRIPT = "<script>canary()</script>"
STRINGS = (
    "text",
    "",
    "12",
    "\n\n",
    "0/0",
    "../../outside",
    _LONG,
    f"a\n{_ESCAPES}",
    SCRIPT,
    "\ud800",
    "[bold]canary[/]",
)
VALUES: tuple[Any, ...] = (
    *STRINGS,
    [],
    {},
    [1],
    [None],
    [[]],
    {"a": 1},
    None,
    True,
    False,
    float("nan"),
    float("inf"),
    -float("inf"),
    0,
    -1,
    0.5,
    -0.0,
    1e-320,
    2**31,
    2**63,
    2**64,
    10**30,
    -(10**30),
    1e300,
)
RAW_VALUES = {
    "1e400": "1e400",
    "an integer of 5,000 digits": "9" * 5000,
    "lists nested deeply": "[" * _DEEP + "]" * _DEEP,
    "objects nested deeply": '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "no value": "",
}
OVERSIZED: tuple[tuple[str, Any], ...] = (
    ("capacity", 10**8),
    ("capacity", 10**9),
    ("capacity", 10**12),
    ("capacity", 10**18),
    ("seeds", list(range(100_000))),
    ("seeds", list(range(3000))),
    ("sac.hidden", [10**9]),
    ("sac.hidden", [30_000, 30_000]),
    ("sac.hidden", [8] * 10_000),
    ("ddpg.hidden", [10**9]),
    ("ddpg.hidden", [30_000, 30_000]),
    ("sac.batch_size", 10**9),
    ("ddpg.batch_size", 10**9),
    ("task", _LONG),
    ("samplers", [_LONG]),
    ("samplers", [f"adaptive:floor=0.{number}" for number in range(1, 20_000)]),
    ("evaluation_episodes", 10**9),
    ("evaluation_episodes", 10**6),
    ("measured_slots", 10**12),
    ("workers", 10**6),
    ("evaluation_workers", 10**6),
    ("env_steps", 10**18),
    ("updates_per_round", 10**9),
    ("steps_per_round", 10**18),
    ("trace_every", 1),
    ("traced_slots", 10**12),
    ("evaluations", 10**15),
    ("metrics", -1),
    ("env_step", 10**18),
    ("update_step", 10**18),
    ("seconds", 1e308),
    ("returns", [[1.0] * 300_000, []]),
    ("episode_returns", [0.0] * 100_000),
    ("simulators", [None, None]),
    ("simulators", [{}] * 100_000),
    ("wall_seconds", 1e-320),
    ("unknown", [0] * 1_000_000),
)


REPORTED = ("task", "agent", "samplers", "seeds", "env_steps", "wall_seconds", "unknown")
"""The keys of a configuration and a manifest that a report reads."""


def json_files(mutant: Mutant) -> list[Path]:
    """The JSON files that can be parsed."""
    return [path for path in mutant.files() if path.suffix == ".json" and read(path) is not None]


def read(path: Path) -> Any:
    """The contents of a JSON file; None if it cannot be parsed."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None


def retype(mutant: Mutant) -> str | None:
    """Replace a random value by one of another type."""
    path = _one(mutant)
    if path is None:
        return None
    values = read(path)
    keys = mutant.random.choice(_read_places(mutant, path))
    if mutant.random.random() < 0.15:
        name, raw = mutant.random.choice(list(RAW_VALUES.items()))
        _write(path, json.dumps(_with(values, keys, _RAW)).replace(f'"{_RAW}"', raw))
    else:
        value = mutant.random.choice(VALUES)
        name = repr(value)[:40]
        _write(path, json.dumps(_with(values, keys, value)))
    return f"{mutant.text(path)}: {'.'.join(map(str, keys)) or 'the whole file'} = {name}"


def oversize(mutant: Mutant) -> str | None:
    """Set an option to a value that needs far too much memory, time or disk space."""
    name, value = mutant.random.choice(OVERSIZED)
    keys = tuple(name.split("."))
    if mutant.command == "report" and keys[0] not in REPORTED:
        return None
    files = json_files(mutant)
    holders = [path for path in files if keys in _places(read(path))] or files
    if not holders:
        return None
    path = mutant.random.choice(holders)
    values = read(path)
    if not isinstance(values, dict) or (len(keys) > 1 and not isinstance(values.get(keys[0]), dict)):
        return None
    _write(path, json.dumps(_with(values, keys, value)))
    return f"{mutant.text(path)}: {name} = {repr(value)[:40]}"


def delete_key(mutant: Mutant) -> str | None:
    """Delete a key or an element."""
    path = _one(mutant)
    if path is None:
        return None
    values = read(path)
    places = [keys for keys in _read_places(mutant, path) if keys]
    if not places:
        return None
    keys = mutant.random.choice(places)
    holder = values
    for key in keys[:-1]:
        holder = holder[key]
    del holder[keys[-1]]
    _write(path, json.dumps(values))
    return f"{mutant.text(path)}: without {'.'.join(map(str, keys))}"


def name_a_module(mutant: Mutant) -> str | None:
    """Let the directory name a module that the user did not name."""
    config = mutant.run / "config.json"
    values = read(config) if config.is_file() and not config.is_symlink() else None
    if not isinstance(values, dict):
        return None
    module = mutant.random.choice(EVIL_MODULES)
    choices: tuple[tuple[str, Any], ...] = (
        ("task", f"{module}:Env-v0"),
        ("task", f"{module}:InvertedPendulum-v5"),
        ("samplers", [f"{module}:floor=0.1"]),
        ("module", module),
        ("modules", [module]),
        ("extensions", [module]),
        ("AES_RL_MODULES", module),
    )
    name, value = mutant.random.choice((*choices[:2] * 3, *choices))
    config.write_text(json.dumps(values | {name: value}))
    source = evil_source(mutant.outside / "executed")
    (mutant.run / "evil_module.py").write_text(source)
    (mutant.run / "evil_package").mkdir(exist_ok=True)
    for file in ("__init__.py", "module.py"):
        (mutant.run / "evil_package" / file).write_text(source)
    return f"config.json: {name} = {value!r}"


def change_cell(mutant: Mutant) -> str | None:
    """Change a table's cell, column or row."""
    tables = [path for path in mutant.files() if path.suffix == ".csv"]
    if not tables:
        return None
    random, path = mutant.random, mutant.random.choice(tables)
    rows = [line.split(",") for line in path.read_text(errors="replace").splitlines()]
    if len(rows) < 2:
        return None
    row = random.choice(rows)
    kind = random.choice(("cell", "cell", "cell", "cell", "short", "long", "head", "twice", "order", "empty"))
    cell = random.choice(
        (*STRINGS, "nan", "inf", "-inf", "1e400", "-1", "1e999999999", "9" * 5000, '"', "\0", "٣", "1_0")
    )
    if kind == "cell":
        row[random.randrange(len(row))] = cell.replace("\ud800", "?")
    elif kind == "short":
        del row[random.randrange(len(row)) :]
    elif kind == "long":
        row.extend(["1"] * random.choice((1, 10_000)))
    elif kind == "head":
        del rows[0]
    elif kind == "twice":
        rows += rows[1:]
    elif kind == "order":
        rows[1:] = random.sample(rows[1:], len(rows) - 1)
    else:
        del rows[1:]
    path.write_text("".join(",".join(cells) + "\n" for cells in rows))
    return f"{mutant.text(path)}: {kind} {cell[:20]!r}"


def study(mutant: Mutant) -> str | None:
    """Add a study.json with too many runs or with wrong types."""
    if mutant.command != "report":
        return None
    many = list(range(1000))
    plan: dict[str, Any] = {"tasks": ["InvertedPendulum-v5"], "agents": ["sac"], "samplers": ["uniform"], "seeds": [0]}
    kind = mutant.random.choice(("1000⁴", "wrong", "wrong", "long"))
    if kind == "1000⁴":
        plan = dict.fromkeys(plan, many)
    elif kind == "long":
        plan["seeds"] = list(range(500_000))
    else:
        plan[mutant.random.choice(list(plan))] = mutant.random.choice(VALUES)
    (mutant.run / "study.json").write_text(json.dumps(plan))
    return f"study.json: {kind}"


def _write(path: Path, text: str) -> None:
    before = path.read_bytes()
    path.write_text(text)
    update_checksum(path, before)


def _one(mutant: Mutant) -> Path | None:
    files = json_files(mutant)
    return mutant.random.choice(files) if files else None


def _read_places(mutant: Mutant, path: Path) -> list[tuple[Any, ...]]:
    """The keys of the values that the command reads."""
    places = _places(read(path))
    if mutant.command != "report" or path.name == "study.json":
        return places
    return [keys for keys in places if not keys or keys[0] in REPORTED]


def _places(values: Any, keys: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = values.items() if isinstance(values, dict) else enumerate(values[:50]) if isinstance(values, list) else ()
    return [keys, *(place for key, value in inner for place in _places(value, (*keys, key)))]


def _with(values: Any, keys: tuple[Any, ...], value: Any) -> Any:
    if not keys:
        return value
    holder = values
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    return values
