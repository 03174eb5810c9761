"""Training without what only Linux on x86 has, as on a Mac with an ARM processor."""

import os
import subprocess
import sys
from pathlib import Path

WITHOUT_LINUX = """
import os, platform, sys
import psutil  # on Linux it wants what is hidden below
sys.modules["resource"] = None
platform.machine = lambda: "arm64"
for name in ("sched_getaffinity", "sched_setaffinity", "sched_yield", "sched_setscheduler", "SCHED_IDLE"):
    if hasattr(os, name):
        delattr(os, name)
"""
TRAIN = """
import aes_rl.cli

if __name__ == "__main__":
    aes_rl.cli.main(["train", "run", "--task", "InvertedPendulum-v5", "--samplers", "uniform", "predictive",
        "--env-steps", "60", "--capacity", "50", "--evaluate-every", "30", "--evaluation-episodes", "1",
        "--workers", "2", "--evaluation-workers", "1", "--sac.hidden", "4", "4", "--sac.batch-size", "4"])
"""


def test_a_run_needs_nothing_that_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LINUX)
    (tmp_path / "script.py").write_text(TRAIN)
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    result = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "manifest.json").exists()


def test_memory_is_asked_for_without_proc() -> None:
    source = Path(__file__).parents[2] / "src" / "aes_rl"
    assert not [path for path in source.rglob("*.py") if "/proc/" in path.read_text()]
