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
    {"experiments"},
    {"cli"},
    {"__main__"},
]
"""A part may import parts of its own layer and of the layers before it, but for the pairs below."""
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


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aes_rl"):
            rest = node.module.split(".")[1:]
            found |= {rest[0]} if rest else {alias.name for alias in node.names if not alias.name.startswith("__")}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("aes_rl.")}
    return found


def test_parts_import_downwards_only() -> None:
    rank = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}
    for path in SOURCE.rglob("*.py"):
        part = part_of(path)
        if part == "__init__":
            continue
        assert part in rank, f"{part} has no layer; give it one in this test and in docs/architecture.md"
        for imported in imports_of(path) - {part}:
            assert rank[imported] <= rank[part], f"{path} imports {imported}"
            assert (part, imported) not in FORBIDDEN, f"{path} imports {imported}"


def test_files_stay_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    too_long = {str(path): length for path, length in lengths.items() if length > 400}
    assert not too_long
    assert statistics.median(lengths.values()) < 200


def test_the_torch_engine_runs_without_numba() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import torch\n"
        "from aes_rl import Adaptive, Replay, Transition\n"
        "replay = Replay([Adaptive()], capacity=4, observation_size=1, action_size=1, seeds=[0], engine='torch')\n"
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
