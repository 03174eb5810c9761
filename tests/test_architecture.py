"""The house rules that a test can check: who imports whom, how long files are, what the GPU path needs."""

import ast
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "aes_rl"

LAYERS = [
    {"types", "checks", "errors", "files", "paper", "lazy", "machine", "extensions", "options"},
    {"streams"},
    {"backends", "layers"},
    {"weighting"},
    {"replay", "samplers", "gradients"},
    {"lab", "testing", "agents", "integrations"},
    {"training"},
    {"study"},
    {"report"},
    {"lab.commands"},
    {"cli"},
    {"__main__"},
]
"""A part may import parts of its own layer and of the layers before it, except for the pairs below. A package's name
stands for what is in it, except for a part of its own, such as `lab.commands` in `lab`."""
FORBIDDEN = {
    ("samplers", "replay"),
    ("samplers", "gradients"),
    ("gradients", "samplers"),
    ("gradients", "replay"),
    ("agents", "samplers"),
    ("agents", "replay"),
    ("report", "training"),
    ("report", "study"),
}
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}


def part_of(module: str) -> str:
    """The most specific part that a module belongs to; its name is relative to the package."""
    names = module.split(".")
    prefixes = [".".join(names[:length]) for length in range(len(names), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in RANKS), prefixes[-1])


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports_of(source: str) -> set[str]:
    """The parts that a file imports; `from a import b` may name a module b."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    own = [name.removeprefix("aes_rl.") for name in names if name.startswith("aes_rl.")]
    return {part_of(name) for name in own if not name.startswith("__")}


def test_parts_import_downwards_only() -> None:
    for path in SOURCE.rglob("*.py"):
        part = part_of(module_of(path))
        if part == "__init__":
            continue
        assert part in RANKS, f"{part} has no layer; give it one in this test and in docs/architecture.md"
        for imported in imports_of(path.read_text()) - {part}:
            assert RANKS[imported] <= RANKS[part], f"{path} imports {imported}"
            assert (part, imported) not in FORBIDDEN, f"{path} imports {imported}"


def test_a_part_within_a_package_has_its_own_rank() -> None:
    """The laboratory's commands may import training; the laboratory may import neither training nor its commands."""
    assert part_of("lab.commands.score") == "lab.commands"
    assert part_of("lab.score") == "lab"
    assert imports_of("from aes_rl.lab import commands") == {"lab.commands"}
    assert imports_of("import aes_rl.lab.commands.score") == {"lab.commands"}
    assert imports_of("from aes_rl.lab.score import Score") == {"lab"}
    assert imports_of("from aes_rl import checks, __version__") == {"checks"}
    assert RANKS["lab"] < RANKS["training"] < RANKS["lab.commands"]


def test_files_stay_short() -> None:
    ignored = {".venv", "device", "runs", "site"}  # by git
    paths = [path for path in ROOT.rglob("*.py") if not ignored & set(path.parts)]
    lengths = {path: len(path.read_text().splitlines()) for path in paths}
    too_long = {str(path): length for path, length in lengths.items() if length > 400}
    assert not too_long
    assert statistics.median(lengths.values()) < 200


def test_the_torch_backend_runs_without_numba() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import torch\n"
        "from aes_rl import Adaptive, Replay, Transition\n"
        "replay = Replay([Adaptive()], capacity=4, observation_size=1, action_size=1, seeds=[0], backend='torch')\n"
        "one = torch.ones(1, 1)\n"
        "replay.add(Transition(one, one, one[0], one, one[0]))\n"
        "replay.sample(2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_transition_can_be_followed_through_five_files() -> None:
    """env step → store → draw → update → feedback, in under a thousand lines."""
    subprocess.run([sys.executable, str(ROOT / "scripts" / "trace.py")], check=True)


def test_names_are_found_without_importing_them_first() -> None:
    code = "import aes_rl; aes_rl.Adaptive(); aes_rl.samplers.RULES; assert 'Replay' in dir(aes_rl); aes_rl.nothing"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "AttributeError: module 'aes_rl' has no attribute 'nothing'" in done.stderr


def test_processes_that_step_or_play_do_without_torch() -> None:
    """Fifteen of them start with every population, and torch would take most of their time and memory."""
    code = (
        "import sys, aes_rl.training.vector.processes, aes_rl.training.episode_worker; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
